// NCCL between ranks under mpirun: the checks that every backend passes.
//
// Ranks share a GPU where there are fewer: each tells NCCL that it is on a machine of its own, and what they send
// passes through sockets.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/comm/collective_checks.h"
#include "tests/comm/cuda/blocked_stream.h"
#include "tests/comm/cuda/gpu_memory.h"
#include "tests/comm/mismatch_checks.h"
#include "tests/comm/mpi/job.h"
#include "tests/support/errors.h"
#include "zeepo/comm/gpu_place.h"
#include "zeepo/comm/rank_sum.h"
#include "zeepo/device/devices.h"

namespace zeepo {
namespace {

class NcclRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
    if (cuda_devices() == 0) GTEST_SKIP() << "no GPU that CUDA can use";
    ::setenv("NCCL_HOSTID", fmt::format("rank {}", job().rank()).c_str(), 1);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  }
};

// Not finished: the job's communicator would be with it, and is needed for more.
TEST_F(NcclRanks, GetTheReferenceToTheBit) {
  const GpuPlace place = find_gpu(job());
  const auto nccl = make_nccl_communicator(job(), place.gpu);
  nccl->set_progress_timeout(120);
  CudaStream compute(place.gpu);
  GpuMemory memory(*nccl, *nccl->on_device(), compute);
  check_collectives(memory);
  check_mismatches(memory);
  ThreadPool pool(1);
  CpuStream stream(pool);
  for (int call = 0; call < 100; ++call) check_all_reduce(memory, stream, 1 + call % 7);
  check_all_reduce(job(), stream, 1);  // all have got everything: they may part
}

// Rank 0's GPU does not come to a call: the others are brought back from it.
TEST_F(NcclRanks, ACallThatDoesNotEndIsEnded) {
  const int rank = job().rank(), ranks = job().size();
  ThreadPool pool(1);
  CpuStream stream(pool);
  const GpuPlace place = find_gpu(job());
  CudaStream compute(place.gpu);
  const MemoryRange memory = device_memory(compute, "device", static_cast<std::size_t>(ranks) * sizeof(float));
  const View full{memory.data(), DType::f32, {ranks}};
  const auto nccl = make_nccl_communicator(job(), place.gpu);
  nccl->set_progress_timeout(1);
  job().set_progress_timeout(120);
  BlockedStream latch;
  if (rank == 0) latch.block(compute.handle());
  const Point done =
      nccl->on_device()->all_gather(point_of(compute), part_of(ConstView(full), rank, ranks), full, {"weights", 4});
  float timeouts = 0;
  if (rank > 0) {
    start_after(compute, done);
    compute.synchronize();  // CTest's limit is the limit
    const std::string text = error_text([&] { nccl->on_device()->check(); });
    // Of several, one may find that another has parted before its own time is over.
    if (names(text, "(--timeout)", "all-gather", "weights", "all ranks have entered the call")) timeouts = 1;
    EXPECT_TRUE(names(text, "NCCL"));
  }
  job().all_reduce(stream, {&timeouts, DType::f32, {1}}, {"timeouts", 0});  // rank 0 waits for the others
  latch.open();
  EXPECT_GE(timeouts, 1);
}

}  // namespace
}  // namespace zeepo
