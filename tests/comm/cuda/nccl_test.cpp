// NCCL in a world of one rank, which sends to itself; between ranks: tests/comm/nccl.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/comm/collective_checks.h"
#include "tests/comm/cuda/gpu_memory.h"
#include "tests/support/errors.h"
#include "zeepo/comm/call.h"
#include "zeepo/comm/launch.h"
#include "zeepo/comm/self/self_communicator.h"

namespace zeepo {
namespace {

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  }
};

TEST_F(Nccl, EveryRankGetsTheReferenceToTheBit) {
  SelfCommunicator self;
  const auto nccl = make_nccl_communicator(self, 0);
  EXPECT_FALSE(nccl->alone());
  CudaStream compute;
  GpuMemory memory(*nccl, *nccl->on_device(), compute);
  check_collectives(memory);
  nccl->finish();
}

// A world whose other ranks are lost when the test says so.
class Failing final : public Communicator {
 public:
  std::string_view name() const override { return "failing"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(CpuStream& s, ConstView shard, View full, const Label& l) override {
    self_.all_gather(s, shard, full, l);
  }
  void reduce_scatter(CpuStream& s, ConstView full, View scratch, View shard, const Label& l,
                      const SumInto& how) override {
    self_.reduce_scatter(s, full, scratch, shard, l, how);
  }
  void all_reduce(CpuStream& s, View x, const Label& l) override { self_.all_reduce(s, x, l); }
  void broadcast(CpuStream& s, View x, int root, const Label& l) override { self_.broadcast(s, x, root, l); }
  void agree(const Call& call) override { agreed.push_back(describe(call)); }
  void exchange(const Call& call, std::span<const Outgoing>, std::span<const Incoming>) override {
    exchanged.push_back(describe(call));
  }
  std::vector<int> nodes() const override { return {4}; }
  std::optional<std::string> failure() const override {
    if (!failed) return std::nullopt;
    return "rank 7 has died";
  }

  std::vector<std::string> agreed, exchanged;
  std::atomic<bool> failed = false;

 private:
  SelfCommunicator self_;
};

TEST_F(Nccl, RanksAgreeOnACallBeforeItIsQueued) {
  Failing world;
  const auto nccl = make_nccl_communicator(world, 0);
  CudaStream compute;
  GpuMemory memory(*nccl, *nccl->on_device(), compute);
  world.agreed.clear();
  ThreadPool pool(1);
  CpuStream stream(pool);
  check_reduce_scatter(memory, stream, DType::bf16, DType::f32, 8, false);
  ASSERT_EQ(world.agreed.size(), 1u);
  EXPECT_TRUE(names(world.agreed[0], "reduce-scatter of 16 bytes of bf16 into fp32", "id 8")) << world.agreed[0];
}

TEST_F(Nccl, WhereTheRanksAreAndTheirMessagesAreTheOthersBusiness) {
  Failing world;
  const auto nccl = make_nccl_communicator(world, 0);
  EXPECT_EQ(nccl->nodes(), std::vector{4});
  nccl->exchange(exchange_call(WireType::int8, ExchangePhase::reduce_within, 64, {"gradients", 1}), {}, {});
  EXPECT_EQ(world.exchanged.size(), 1u);
}

TEST_F(Nccl, AFailedRankEndsEveryCall) {
  Failing world;
  const auto nccl = make_nccl_communicator(world, 0);
  CudaStream compute;
  GpuMemory memory(*nccl, *nccl->on_device(), compute);
  ThreadPool pool(1);
  CpuStream stream(pool);
  check_all_reduce(memory, stream, 5);
  world.failed = true;
  std::string text;
  while (text.empty()) {  // until it has been seen
    try {
      nccl->on_device()->check();
    } catch (const Error& error) {
      text = error.what();
    }
  }
  EXPECT_TRUE(names(text, "rank 7 has died")) << text;
  text = error_text([&] { check_all_reduce(memory, stream, 5); });
  EXPECT_TRUE(names(text, "rank 7 has died")) << text;
}

TEST_F(Nccl, AFailureThatNobodyTakesEndsTheJob) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own: CUDA does not outlive a fork
  const auto works_on = [] {
    Failing world;
    const auto nccl = make_nccl_communicator(world, 0);
    world.failed = true;
    std::this_thread::sleep_for(std::chrono::minutes(5));
  };
  EXPECT_EXIT(works_on(), ::testing::ExitedWithCode(1), "rank 0: rank 7 has died");
}

}  // namespace
}  // namespace zeepo
