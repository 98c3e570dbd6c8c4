#include <array>
#include <chrono>
#include <thread>

#include "tests/comm/collective_checks.h"
#include "tests/comm/mismatch_checks.h"
#include "tests/support/errors.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/comm/throttled/throttled_communicator.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

TEST(ThrottledCommunicator, ChangesNoBit) {
  for (const int ranks : {1, 2, 3}) {
    ThreadsWorld world(ranks);
    run(world, [](Communicator& inner) {
      ThrottledCommunicator comm(inner, 1e12);
      check_collectives(comm);
      check_exchange(comm);
      comm.finish();
    });
  }
}

TEST(ThrottledCommunicator, FindsMismatches) {
  ThreadsWorld world(2);
  run(world, [](Communicator& inner) {
    ThrottledCommunicator comm(inner, 1e12);
    check_mismatches(comm);
  });
}

TEST(ThrottledCommunicator, TakesTheTimeOfWhatItSendsOnceAllRanksHaveCome) {
  // 400 bytes of 4 ranks: 300 are sent, in 30 ms.
  ThreadsWorld world(4);
  std::array<Clock::time_point, 4> came;
  std::array<Clock::time_point, 4> left;
  run(world, [&](Communicator& inner) {
    ThreadPool pool(1);
    CpuStream stream(pool);
    ThrottledCommunicator comm(inner, 1e4);
    Values full(DType::f32, 100, comm.rank());
    const auto at = static_cast<std::size_t>(comm.rank());
    if (comm.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    came[at] = Clock::now();
    comm.all_gather(stream, full.part(comm.rank(), 4), full.view(), {"values", 1});
    left[at] = Clock::now();
  });
  for (const auto time : left) EXPECT_GE(Seconds(time - came[3]).count(), 0.03);
}

TEST(ThrottledCommunicator, RefusesARateOfNothing) {
  ThreadsWorld world(1);
  for (const double rate : {0.0, -1.0})
    EXPECT_NE(error_text([&] { ThrottledCommunicator(world.communicator(0), rate); }).find("must be more than 0"),
              std::string::npos);
}

}  // namespace
}  // namespace zeepo
