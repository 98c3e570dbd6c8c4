// The collectives under mpirun: the same checks as for ranks as threads, and the same sums to the bit.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "tests/comm/collective_checks.h"
#include "tests/comm/mismatch_checks.h"
#include "tests/comm/mpi/job.h"
#include "zeepo/comm/wire_collectives.h"

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

// The second exchange of each goes on without a header: ranks that are ahead must not meet those that are behind.
TEST(Mpi, GathersAndReductionsByNodesInARow) {
  constexpr std::int64_t kShard = 640;
  constexpr double kHalfStep = 1024 / 126.0 / 2;  // of the largest values
  ThreadPool pool(1);
  CpuStream stream(pool);
  const int ranks = job().size();
  std::vector<int> pairs;
  for (int rank = 0; rank < ranks; ++rank) pairs.push_back(rank / 2);
  const WirePlan plan = wire_plan(NodeMap(pairs), job().rank());
  Bytes messages(message_bytes(WireType::int8, DType::f32, kShard) * static_cast<std::size_t>(ranks));
  Bytes scratch(reduce_scratch_bytes(plan, WireType::int8, kShard));
  for (int call = 0; call < 50; ++call) {
    if (call % ranks == job().rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Values shard(DType::f32, kShard, job().rank() + call), full(DType::f32, kShard * ranks);
    const WireType type = call % 2 == 0 ? WireType::int8 : WireType::same;
    gather_by_messages(job(), stream, plan, {.type = type, .messages = messages}, shard.view(), full.view(),
                       {"weights", call});
    for (int rank = 0; rank < ranks; ++rank) {
      Values wanted(DType::f32, kShard, rank + call);
      const auto* got = full.part(rank, ranks).as<float>();
      for (std::int64_t i = 0; i < kShard; ++i) {
        const float value = wanted.view().as<float>()[i];
        ASSERT_NEAR(got[i], value, type == WireType::same ? 0 : kHalfStep) << rank << " " << i;
      }
    }
    Values mine(DType::f32, kShard * ranks, 1);
    reduce_by_messages(job(), stream, plan, WireType::int8, mine.view(), scratch, shard.view(), {}, {"gradients", call},
                       {});
    const auto* own = mine.part(job().rank(), ranks).as<float>();
    for (std::int64_t i = 0; i < kShard; ++i)
      ASSERT_NEAR(shard.view().as<float>()[i], own[i] * static_cast<float>(ranks), 2 * kHalfStep * ranks);
  }
}

// Each step of a ring goes on without a header, and passes on what the one before has brought.
TEST(Mpi, GathersAroundARingInARow) {
  constexpr std::int64_t kShard = 70000;  // more than is sent unasked
  ThreadPool pool(1);
  CpuStream stream(pool);
  const int ranks = job().size();
  for (const int node_size : {1, 2}) {
    std::vector<int> layout;
    for (int rank = 0; rank < ranks; ++rank) layout.push_back(rank / node_size);
    const WirePlan plan = wire_plan(NodeMap(layout), job().rank(), GatherWay::ring);
    for (int call = 0; call < 20; ++call) {
      if (call % ranks == job().rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      Values shard(DType::f32, kShard, job().rank() + call), full(DType::f32, kShard * ranks);
      gather_by_messages(job(), stream, plan, {}, shard.view(), full.view(), {"weights", call});
      for (int rank = 0; rank < ranks; ++rank) {
        Values wanted(DType::f32, kShard, rank + call);
        ASSERT_EQ(std::memcmp(full.part(rank, ranks).data, wanted.bytes.data(), wanted.bytes.size()), 0) << rank;
      }
    }
  }
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
