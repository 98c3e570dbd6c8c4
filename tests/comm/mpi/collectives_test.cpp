// The collectives under mpirun: the same checks as for ranks as threads, and the same sums to the bit.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/comm/collective_checks.h"
#include "tests/comm/mismatch_checks.h"
#include "tests/comm/mpi/job.h"

namespace zeepo {
namespace {

TEST(Mpi, TheLaunchSaysWhatMpiSays) {
  const Launch launch = detect_launch();
  EXPECT_TRUE(launch.mpi);
  EXPECT_EQ(launch.rank, job().rank());
  EXPECT_EQ(launch.size, job().size());
  EXPECT_EQ(launch.local_rank, job().local_rank());
  EXPECT_EQ(launch.local_size, job().local_size());
}

TEST(Mpi, EveryRankGetsTheReferenceToTheBit) { check_collectives(job()); }

TEST(Mpi, MessagesComeToTheirRanksInOrder) { check_exchange(job()); }

TEST(Mpi, AllRanksOfThisMachineAreOnOneNode) { EXPECT_EQ(job().nodes(), std::vector<int>(job().nodes().size())); }

TEST(Mpi, MismatchIsAnErrorOnEveryRank) { check_mismatches(job()); }

TEST(Mpi, ManyCallsInARow) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  for (int call = 0; call < 300; ++call) {
    float x = 1;
    job().all_reduce(stream, {&x, DType::f32, {1}}, {"count", call});
    EXPECT_EQ(x, static_cast<float>(job().size()));
  }
}

TEST(Mpi, MessagesOfManyChunks) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const std::int64_t n = (std::int64_t{65} << 20) / 4 + 3;  // a little more than one chunk each
  std::vector<float> full(static_cast<std::size_t>(n * job().size()));
  float* own = full.data() + n * job().rank();
  for (std::int64_t i = 0; i < n; ++i) own[i] = static_cast<float>(i % 1000 + job().rank());
  const View view{full.data(), DType::f32, {n * job().size()}};
  job().all_gather(stream, {own, DType::f32, {n}}, view, {"large", 0});
  std::int64_t wrong = 0;
  for (int rank = 0; rank < job().size(); ++rank)
    for (std::int64_t i = 0; i < n; ++i)
      wrong += full[static_cast<std::size_t>(n * rank + i)] != static_cast<float>(i % 1000 + rank);
  EXPECT_EQ(wrong, 0);
  if (job().rank() != 0) std::memset(own - n * job().rank(), 0, full.size() * sizeof(float));
  job().broadcast(stream, view, 0, {"large", 0});
  for (const float value : full) wrong += value == 0;
  EXPECT_LE(wrong, n / 1000 + 1);  // of rank 0's own part
}

TEST(Mpi, ATimeoutLeavesCallsThatAreInTime) {
  job().set_progress_timeout(60);
  ThreadPool pool(1);
  CpuStream stream(pool);
  check_all_reduce(job(), stream, 5);
  job().set_progress_timeout(0);
}

}  // namespace
}  // namespace zeepo
