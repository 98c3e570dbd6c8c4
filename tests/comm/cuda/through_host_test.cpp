// Ranks that share a GPU: the same results as on host memory, to the bit, in parts of any size.
#include <gtest/gtest.h>

#include "tests/comm/collective_checks.h"
#include "tests/comm/cuda/gpu_memory.h"
#include "tests/comm/mismatch_checks.h"
#include "tests/support/errors.h"
#include "zeepo/comm/gpu_place.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/device/devices.h"

namespace zeepo {
namespace {

// Runs f on every rank with collectives on GPU memory, `staging_bytes` of it at a time.
template <class F>
void run_on_gpu(int ranks, std::size_t staging_bytes, F&& f) {
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& comm) {
    CudaStream compute;
    const MemoryRange staging = transfer_memory(compute, "host", staging_bytes);
    const auto device = through_host(compute, comm, {staging.data(), staging.bytes()});
    GpuMemory memory(comm, *device, compute);
    f(memory);
  });
}

TEST(ThroughHost, EveryRankGetsTheReferenceToTheBit) {
  for (const int ranks : {1, 2, 3}) run_on_gpu(ranks, kStagingBytes, check_collectives);
}

TEST(ThroughHost, InManyParts) {
  for (const int ranks : {2, 3}) run_on_gpu(ranks, 4096, check_collectives);
}

TEST(ThroughHost, MismatchIsAnErrorOnEveryRank) { run_on_gpu(3, kStagingBytes, check_mismatches); }

TEST(ThroughHost, TooLittleHostMemoryIsAnError) {
  const auto gather = [](Communicator& comm) {
    ThreadPool pool(1);
    CpuStream stream(pool);
    check_all_gather(comm, stream, DType::f32, 1000, false);
  };
  EXPECT_TRUE(names(error_text([&] { run_on_gpu(2, 256, gather); }), "256 bytes", "must be at least 512"));
}

TEST(GpuPlace, RanksDivideTheirGpu) {
  const std::size_t free_bytes = cuda_memory(0).free_bytes;
  const int ranks = 2 * cuda_devices();
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& comm) {
    const GpuPlace place = find_gpu(comm);
    EXPECT_EQ(place.gpu, comm.rank() % cuda_devices());
    EXPECT_EQ(place.ranks, 2);
    EXPECT_EQ(place.most_ranks, 2);
    EXPECT_EQ(place.most_alike, 2);  // threads have one NCCL_HOSTID, or none
    if (place.gpu > 0) return;
    EXPECT_LE(place.free_bytes, free_bytes / 2);
    EXPECT_GT(place.free_bytes, free_bytes / 3);
  });
}

}  // namespace
}  // namespace zeepo
