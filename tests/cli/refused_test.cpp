// A system that refuses threads: the program ends with an error in seconds, and the error says so.
#include <sys/resource.h>

#include "tests/support/address_sanitizer.h"
#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"

namespace zeepo {
namespace {

constexpr bool kReservesTerabytes = kAddressSanitizer;  // of addresses, at its start

Finished train_on(int threads, Limits limits) {
  const auto model = golden("gpt2-tiny");
  limits.seconds = 60;
  return run_program(kProgram,
                     {"train", "--model", model.string(), "--data", (model / "tokens.bin").string(), "--seq-len", "16",
                      "--micro-batch", "2", "--steps", "1", "--device", "cpu", "--memory", "device=64MiB,host=64MiB",
                      "--threads", std::to_string(threads)},
                     limits);
}

void expect_refusal(const Finished& finished, int threads) {
  EXPECT_EQ(finished.code, 1) << finished.err;
  EXPECT_TRUE(names(finished.err, "cannot start a thread for the pool of " + std::to_string(threads), "ulimit -u",
                    "ulimit -v", "--threads"));
}

TEST(RefusedThreads, OfAUserEndTheRunInAnError) {
  const Limits limits{.processes = 40};
  const Finished few = train_on(2, limits);
  if (few.code == kUnlimited || few.code == kNotStarted || few.err.find("ermission denied") != std::string::npos)
    GTEST_SKIP() << "no other user can run the program here: " << few.err;
  EXPECT_EQ(few.code, 0) << few.err;
  expect_refusal(train_on(64, limits), 64);
}

TEST(RefusedThreads, WithoutRoomForTheirStacksEndTheRunInAnError) {
  if (kReservesTerabytes) GTEST_SKIP() << "the address sanitizer starts in no such address space";
  constexpr long kAddressSpace = 3'000'000L << 10;  // ulimit -v 3000000
  constexpr int kThreads = 1024;
  rlimit stack{};
  ASSERT_EQ(::getrlimit(RLIMIT_STACK, &stack), 0);
  if (stack.rlim_cur < kAddressSpace / kThreads || stack.rlim_cur == RLIM_INFINITY)
    GTEST_SKIP() << "the stacks of " << kThreads << " threads have room here";
  const Limits limits{.address_space = kAddressSpace};
  EXPECT_EQ(train_on(2, limits).code, 0);
  expect_refusal(train_on(kThreads, limits), kThreads);
}

}  // namespace
}  // namespace zeepo
