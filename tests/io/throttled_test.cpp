#include <chrono>

#include "tests/io/io_test.h"
#include "zeepo/io/swap_file.h"
#include "zeepo/io/throttled/throttled_engine.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

TEST(ThrottledEngine, TakesTheTimeOfWhatItMoves) {
  const auto inner = make_io_engine();
  ThrottledEngine io(*inner, 50e6);
  const IoDirectory directory;
  SwapFile swap(io, {directory.path()}, 1 << 20);
  const auto written = std::move(AlignedBytes(1 << 20).fill(1));
  AlignedBytes read(1 << 20);
  const auto start = Clock::now();
  // Two writes wait for each other on the link: 1 MiB at 50 MB/s is 21 ms, and the read as much again.
  auto first = swap.write(0, written.span().first(512 << 10));
  auto second = swap.write(512 << 10, written.span().last(512 << 10));
  second.wait();
  EXPECT_GE(Seconds(Clock::now() - start).count(), 0.0209);
  first.wait();
  swap.read(0, read.span()).wait();
  EXPECT_GE(Seconds(Clock::now() - start).count(), 0.0419);
  EXPECT_TRUE(read == written);
}

TEST(ThrottledEngine, NamesItsRate) {
  const auto inner = make_io_engine();
  EXPECT_EQ(ThrottledEngine(*inner, 2.5e9).name(), inner->name() + ", throttled to 2500 MB/s");
}

TEST(ThrottledEngine, RefusesARateOfNothing) {
  const auto inner = make_io_engine();
  for (const double rate : {0.0, -1.0})
    EXPECT_TRUE(names(error_text([&] { ThrottledEngine(*inner, rate); }), "must be more than 0"));
}

}  // namespace
}  // namespace zeepo
