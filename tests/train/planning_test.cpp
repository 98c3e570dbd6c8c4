// Plans are pure: of any rank of any number, without these ranks, without data, without memory of the batch's size.
#include "zeepo/train/planning.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/scratch_model.h"
#include "tests/support/units.h"
#include "zeepo/base/machine.h"
#include "zeepo/base/thread_pool.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

class Planning : public testing::Test {
 protected:
  TrainOptions options() const {
    TrainOptions options = directory_.options();
    options.seq_len = 32;
    options.micro_batch = 2;
    options.steps = 2;
    options.dtype = DType::bf16;
    options.piece_elements = EngineOptions::kPieceAlignment;
    options.device_bytes = 64 * kMiB;
    options.host_bytes = 64 * kMiB;
    return options;
  }
  ScratchModel directory_{128, 4, 512, 1000};
};

TEST_F(Planning, NeedsNoDataAndNoOtherRanks) {
  TrainOptions given = options();
  given.data = "nowhere";
  given.stage = 3;
  given.placement.optimizer = {.host = 0.5};
  const RunSetup alone = make_setup(given, {});
  const MemoryPlan one = plan_memory(alone);
  RunSetup many = alone;
  many.ranks = {.rank = 700, .ranks = 1024, .ranks_on_node = 8};
  const MemoryPlan of_many = plan_memory(many);
  EXPECT_LT(of_many.peak[0][Kind::params], one.peak[0][Kind::params] / 50);
  EXPECT_LT(of_many.peak[1].total, one.peak[1].total);
}

// What a run of several ranks plans, and uses, is what one process plans for each of them.
TEST_F(Planning, IsThatOfTheRun) {
  for (const int stage : {0, 2, 3})
    for (const bool offload : {false, true}) {
      TrainOptions given = options();
      given.stage = stage;
      if (offload) given.placement = {{.host = 1}, {.host = 0.7}, Place::host};
      ::testing::internal::CaptureStderr();
      ThreadsWorld world(3);
      run(world, [&](Communicator& communicator) { Trainer(given, communicator).run(); });
      ::testing::internal::GetCapturedStderr();
      Json summary;
      std::ifstream lines(given.log);
      for (std::string line; std::getline(lines, line);) summary = Json::parse(line);
      for (int rank = 0; rank < 3; ++rank) {
        const MemoryPlan plan = plan_memory(make_setup(given, {.rank = rank, .ranks = 3, .ranks_on_node = 3}));
        const Json& peak = summary.at("ranks").at(static_cast<std::size_t>(rank)).at("peak_bytes");
        EXPECT_EQ(plan.peak[0].total, peak.at("device").at("total")) << stage << " " << offload << " " << rank;
        EXPECT_EQ(plan.peak[1].total, peak.at("host").at("total")) << stage << " " << offload << " " << rank;
      }
    }
}

TEST_F(Planning, ChangesNothingOfItsSetup) {
  TrainOptions given = options();
  given.choose = {.params = true, .optimizer = true, .activations = true, .prefetch = true};
  given.device_bytes = 3 * kMiB;
  const RunSetup setup = make_setup(given, {});
  const MemoryPlan before = plan_memory(setup);
  const std::vector rooms{room_of(tier_options(given), {}, 1)};
  const RunSetup chosen = choose_placement(setup, rooms);
  const RunPlan plan = plan_run(chosen, rooms);
  EXPECT_NE(flags_of(chosen.arrangement()), flags_of(setup.arrangement()));
  EXPECT_EQ(flags_of(plan.setup.arrangement()), flags_of(chosen.arrangement()));
  EXPECT_TRUE(plan.memory.fits(plan.budgets));
  const MemoryPlan after = plan_memory(setup);
  EXPECT_EQ(after.bytes, before.bytes);
  EXPECT_EQ(plan_run(chosen, rooms).memory.bytes, plan.memory.bytes);
}

// Smaller pieces of optimizer state may take more of the device: they are no answer to a budget that has room for
// larger.
TEST_F(Planning, BuffersShrinkOnlyWhereAStepWouldNotFit) {
  ScratchModel larger{256, 6, 1024, 4000};
  TrainOptions given = larger.options();
  given.seq_len = 8;
  given.placement.optimizer = {.host = 1};
  const auto planned = [&](std::int64_t host_bytes) {
    given.host_bytes = host_bytes;
    const std::vector rooms{room_of(tier_options(given), {}, 1)};
    const RunPlan plan = plan_run(choose_placement(make_setup(given, {}), rooms), rooms);
    EXPECT_TRUE(plan.memory.fits(plan.budgets)) << host_bytes;
    return plan;
  };
  const RunPlan roomy = planned(1024 * kMiB);
  EXPECT_EQ(roomy.setup.host_room, 0);
  const RunPlan exact = planned(roomy.memory.bytes[1]);
  EXPECT_EQ(exact.memory.bytes, roomy.memory.bytes);
  EXPECT_EQ(engine_options(exact.setup).piece_elements, engine_options(roomy.setup).piece_elements);
}

// The last ranks' shares of small units are padding alone, so that these ranks need less host memory than rank 0.
TEST_F(Planning, AllRanksShrinkTheirBuffersAlike) {
  TrainOptions given = options();
  given.stage = 2;
  given.placement.params = {.nvme = 1};
  given.placement.optimizer = {.host = 1};
  given.nvme_paths = {directory_.path()};
  given.checkpoint_dir = directory_.path() / "checkpoints";
  given.checkpoint_every = 100;
  given.checkpoint_bytes = 1024 * kMiB;
  constexpr int kRanks = 64;
  const auto setup_of = [&](int rank) {
    return make_setup(given, {.rank = rank, .ranks = kRanks, .ranks_on_node = kRanks});
  };
  const std::int64_t first = plan_memory(setup_of(0)).bytes[1];
  ASSERT_GT(first, plan_memory(setup_of(kRanks - 1)).bytes[1]);
  given.host_bytes = first - 1;
  const std::vector rooms(kRanks, room_of(tier_options(given), {}, kRanks));
  std::set<std::int64_t> sizes;
  for (const int rank : {0, 1, kRanks / 2, kRanks - 1}) sizes.insert(choose_placement(setup_of(rank), rooms).host_room);
  EXPECT_EQ(sizes.size(), 1u);
  EXPECT_GT(*sizes.begin(), 0);
}

// Gaps between tensors may be larger on a rank with fewer rows: what the plan says is needed is enough for each rank.
TEST_F(Planning, WhatIsNeededIsEnoughForRanksWithFewerRows) {
  TrainOptions given = options();
  given.model = std::filesystem::path(kTestData) / "golden-extra" / "qwen2-window";
  given.stage = 2;
  given.seq_len = 1;
  given.micro_batch = 3;
  given.grad_accum = 2;
  given.dtype = DType::f32;
  given.linear_tiles = 7;
  given.placement.optimizer = {.host = 1};
  const auto setup_of = [&](int rank) {
    RunSetup setup = make_setup(given, {.rank = rank, .ranks = 2, .ranks_on_node = 2});
    setup.balanced = {.speeds = {1, 0.5}, .rows = {4, 2}};
    return setup;
  };
  const std::vector rooms(2, room_of(tier_options(given), {}, 2));
  const RunPlan first = plan_run(setup_of(0), rooms), second = plan_run(setup_of(1), rooms);
  ASSERT_GT(second.memory.bytes[0], first.memory.bytes[0]);
  EXPECT_EQ(first.needed[0], second.memory.bytes[0]);
  EXPECT_EQ(second.needed, first.needed);
}

TEST_F(Planning, BuffersShrinkWhereAStepWouldNotFit) {
  TrainOptions given = options();
  given.placement.optimizer = {.nvme = 1};
  given.nvme_paths = {directory_.path()};
  given.piece_elements = 0;
  const std::vector roomy{room_of(tier_options(given), {}, 1)};
  const std::int64_t planned = plan_memory(choose_placement(make_setup(given, {}), roomy)).bytes[1];
  given.host_bytes = planned / 2;
  const std::vector rooms{room_of(tier_options(given), {}, 1)};
  const RunPlan plan = plan_run(choose_placement(make_setup(given, {}), rooms), rooms);
  EXPECT_GT(plan.setup.host_room, 0);
  EXPECT_TRUE(plan.memory.fits(plan.budgets));
  // A byte less than the least still says what is missing.
  given.host_bytes = 1;
  const std::vector none{room_of(tier_options(given), {}, 1)};
  const RunPlan refused = plan_run(choose_placement(make_setup(given, {}), none), none);
  EXPECT_TRUE(names(error_text([&] { check_fits(refused, {}); }), "of host memory"));
}

// What all ranks decide alike is decided for the rank that needs most.
TEST_F(Planning, OnUnlikeNodesIsForTheRankWhoseMessagesTakeMost) {
  TrainOptions given = options();
  given.stage = 3;
  for (const WireOptions& wire : {WireOptions{.node_copy = true}, WireOptions{.reduce = WireType::int4},
                                  WireOptions{.gather = WireType::int8, .reduce = WireType::int8, .node_copy = true}})
    for (const std::vector<int>& nodes :
         {std::vector{0, 0, 1}, std::vector{0, 1, 1}, std::vector{0, 0, 0, 1}, std::vector{0, 0, 1, 1, 1, 2}}) {
      given.wire = wire;
      const auto ranks = static_cast<int>(nodes.size());
      const auto planned = [&](int rank) {
        return make_setup(given, {.rank = rank, .ranks = ranks, .ranks_on_node = 2, .nodes = nodes});
      };
      const RunSetup largest = as_largest(planned(0));
      if (wire.node_copy) {
        EXPECT_EQ(std::ranges::count(nodes, nodes[static_cast<std::size_t>(largest.ranks.rank)]), 1);
      }
      const std::int64_t most = plan_memory(largest).bytes[0];
      for (int rank = 0; rank < ranks; ++rank) EXPECT_LE(plan_memory(planned(rank)).bytes[0], most) << rank;
    }
  given.wire = {.node_copy = true};
  const RunSetup alike = make_setup(given, {.rank = 3, .ranks = 4, .ranks_on_node = 2, .nodes = {0, 0, 1, 1}});
  EXPECT_EQ(as_largest(alike).ranks.rank, 0);
}

TEST_F(Planning, MakesNoBatch) {
  TrainOptions huge = options();
  huge.micro_batch = 1 << 20;  // 32Mi tokens: 256 MiB of ids and targets
  const std::int64_t before = peak_resident_bytes();
  const MemoryPlan plan = plan_memory(make_setup(huge, {}));
  EXPECT_GT(plan.bytes[0], std::int64_t{1} << 35);
  EXPECT_LT(peak_resident_bytes() - before, 32 * kMiB);
}

TEST_F(Planning, AbsentRanksSendNothing) {
  AbsentRanks ranks({.rank = 1, .ranks = 2});
  EXPECT_FALSE(ranks.alone());
  EXPECT_TRUE(AbsentRanks({}).alone());
  EXPECT_FALSE(AbsentRanks({.meet = RankShape::Meet::on_device}).alone());  // NCCL's one rank makes collectives too
  ThreadPool pool(1);
  CpuStream stream(pool);
  float number = 0;
  const View view{&number, DType::f32, {1}};
  EXPECT_TRUE(names(error_text([&] { ranks.all_reduce(stream, view, {"a sum", 0}); }), "a sum", "not there"));
  EXPECT_TRUE(names(error_text([&] { AbsentRanks({.rank = 2, .ranks = 2}); }), "rank 2 of 2"));
}

}  // namespace
}  // namespace zeepo
