// NCCL between ranks under mpirun: the checks that every backend passes.
//
// Ranks share a GPU where there are fewer: each tells NCCL that it is on a machine of its own, and what they send
// passes through sockets.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/comm/collective_checks.h"
#include "tests/comm/cuda/gpu_memory.h"
#include "tests/comm/mismatch_checks.h"
#include "tests/comm/mpi/job.h"
#include "zeepo/comm/gpu_place.h"
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

// Once: a communicator of the job is finished with the job.
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

}  // namespace
}  // namespace zeepo
