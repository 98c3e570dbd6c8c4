// A lane of NCCL's calls: which of them counts as overdue.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/comm/cuda/blocked_stream.h"
#include "tests/support/errors.h"
#include "zeepo/comm/nccl/nccl_lane.h"
#include "zeepo/comm/self/self_communicator.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/cuda/point.h"

namespace zeepo {
namespace {

constexpr double kPatience = 0.05;

class NcclLaneTest : public ::testing::Test {
 protected:
  using Clock = std::chrono::steady_clock;

  void SetUp() override { lane_.open(self_, "tests"); }

  // Asks again and again, as a watcher does, until a call is overdue or the time is over.
  std::optional<Call> ask_for(Clock::duration time) {
    const auto end = Clock::now() + time;
    std::optional<Call> overdue = lane_.overdue();
    while (!overdue && Clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      overdue = lane_.overdue();
    }
    return overdue;
  }
  std::optional<Call> ask_until_overdue() { return ask_for(std::chrono::seconds(10)); }
  std::optional<Call> ask_for_long() { return ask_for(std::chrono::milliseconds(300)); }

  void finish(const Point& done) {
    latch_.open();
    start_after(compute_, done);
    compute_.synchronize();
  }
  Call call() const { return broadcast_call(1, View{nullptr, DType::f32, {0}}, 0, {"weights", 4}); }

  SelfCommunicator self_;
  NcclLane lane_;
  CudaStream compute_;
  BlockedStream latch_;
};

TEST_F(NcclLaneTest, ACallThatDoesNotEndIsOverdue) {
  lane_.set_patience(kPatience);
  const Point done = lane_.run({}, call(), [&](ncclComm_t, cudaStream_t stream) { latch_.block(stream); });
  const auto overdue = ask_until_overdue();
  finish(done);
  ASSERT_TRUE(overdue);
  EXPECT_TRUE(names(describe(*overdue), "broadcast", "weights", "id 4")) << describe(*overdue);
  EXPECT_FALSE(ask_for_long());
}

TEST_F(NcclLaneTest, ACallThatDoesNotReturnIsOverdue) {
  lane_.set_patience(kPatience);
  Point done;
  std::thread caller([&] { done = lane_.run({}, call(), [&](ncclComm_t, cudaStream_t) { latch_.wait(); }); });
  const auto overdue = ask_until_overdue();
  latch_.open();
  caller.join();
  finish(done);
  ASSERT_TRUE(overdue);
  EXPECT_TRUE(names(describe(*overdue), "broadcast", "weights", "id 4")) << describe(*overdue);
  EXPECT_FALSE(ask_for_long());
}

TEST_F(NcclLaneTest, ACallThatHasThrownIsForgotten) {
  lane_.set_patience(kPatience);
  const auto fails = [](ncclComm_t, cudaStream_t) { throw Error("no link"); };
  EXPECT_TRUE(names(error_text([&] { (void)lane_.run({}, call(), fails); }), "no link"));
  EXPECT_FALSE(ask_for_long());
}

TEST_F(NcclLaneTest, WhatHasNotBegunIsNotOverdue) {
  lane_.set_patience(kPatience);
  latch_.block(compute_.handle());
  const Point done = lane_.run(point_of(compute_), call(), [](ncclComm_t, cudaStream_t) {});
  const auto overdue = ask_for_long();
  finish(done);
  EXPECT_FALSE(overdue);
}

TEST_F(NcclLaneTest, WithoutPatienceNothingIs) {
  const Point done = lane_.run({}, call(), [&](ncclComm_t, cudaStream_t stream) { latch_.block(stream); });
  const auto overdue = ask_for_long();
  finish(done);
  EXPECT_FALSE(overdue);
}

}  // namespace
}  // namespace zeepo
