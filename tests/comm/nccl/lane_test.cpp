// A lane of NCCL's calls: which of them counts as overdue.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <thread>

#include "tests/support/errors.h"
#include "zeepo/comm/nccl/nccl_lane.h"
#include "zeepo/comm/self/self_communicator.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/cuda/point.h"

namespace zeepo {
namespace {

constexpr double kPatience = 0.05;
constexpr auto kLonger = std::chrono::milliseconds(100);

// The stream stands still until the latch opens.
void block(cudaStream_t stream, std::latch& latch) {
  cuda_check(cudaLaunchHostFunc(
      stream, [](void* opens) { static_cast<std::latch*>(opens)->wait(); }, &latch));
}

class NcclLaneTest : public ::testing::Test {
 protected:
  // Looks for as long as the patience lasts, and once more.
  std::optional<Call> look() {
    (void)lane_.overdue();
    std::this_thread::sleep_for(kLonger);
    return lane_.overdue();
  }
  Call call() const { return broadcast_call(1, View{nullptr, DType::f32, {0}}, 0, {"weights", 4}); }

  SelfCommunicator self_;
  NcclLane lane_{self_, "tests"};
  CudaStream compute_;
};

TEST_F(NcclLaneTest, ACallThatDoesNotEndIsOverdue) {
  lane_.set_patience(kPatience);
  std::latch latch(1);
  const Point done = lane_.run({}, call(), [&](ncclComm_t, cudaStream_t stream) { block(stream, latch); });
  const auto overdue = look();
  latch.count_down();
  ASSERT_TRUE(overdue);
  EXPECT_TRUE(names(describe(*overdue), "broadcast", "weights", "id 4")) << describe(*overdue);
  start_after(compute_, done);
  compute_.synchronize();
  EXPECT_FALSE(look());
}

TEST_F(NcclLaneTest, WhatHasNotBegunIsNotOverdue) {
  lane_.set_patience(kPatience);
  std::latch latch(1);
  block(compute_.handle(), latch);
  const Point done = lane_.run(point_of(compute_), call(), [](ncclComm_t, cudaStream_t) {});
  const auto overdue = look();
  latch.count_down();
  EXPECT_FALSE(overdue);
  start_after(compute_, done);
  compute_.synchronize();
}

TEST_F(NcclLaneTest, WithoutPatienceNothingIs) {
  std::latch latch(1);
  const Point done = lane_.run({}, call(), [&](ncclComm_t, cudaStream_t stream) { block(stream, latch); });
  const auto overdue = look();
  latch.count_down();
  EXPECT_FALSE(overdue);
  start_after(compute_, done);
  compute_.synchronize();
}

}  // namespace
}  // namespace zeepo
