// Weights and gradients in codes: what is lost is lost in the same way at every stage and in every place, and nothing
// is lost where nothing is coded.
#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"

namespace zeepo {
namespace {

const WireOptions kWeights{.gather = WireType::int8}, kGradients{.reduce = WireType::int4};
const WireOptions kAll{.gather = WireType::int8, .reduce = WireType::int4, .node_size = 2};

std::string text_of(const ShardedRun& run) {
  const WireOptions& wire = run.options.wire;
  return fmt::format("stage {}, {} ranks, {}, gather {}, reduce {}, nodes of {}", run.options.stage, run.ranks,
                     name_of(run.options.dtype), name_of(wire.gather), name_of(wire.reduce), wire.node_size);
}

ShardedRun coded_run(int ranks, const WireOptions& wire, DType dtype = DType::f32, std::int64_t accumulation = 1) {
  ShardedRun run{.ranks = ranks, .options = {.dtype = dtype, .stage = 3, .accumulation = accumulation}};
  run.options.wire = wire;
  return run;
}

template <class Model>
class Wire : public ::testing::Test {};
using Models = ::testing::Types<Tiny, Tied, CalledAgain, Frozen, Unused, Outside, Deep>;
TYPED_TEST_SUITE(Wire, Models);

TYPED_TEST(Wire, StagesWithShardsGiveTheSameBits) {
  WireOptions feedback = kAll;
  feedback.feedback = true;
  for (const WireOptions& wire : {kWeights, kGradients, kAll, feedback})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      ShardedRun run = coded_run(4, wire, dtype, dtype == DType::bf16 ? 2 : 1);
      const auto reference = train_ranks<TypeParam>(run);
      for (const int stage : {1, 2}) {
        run.options.stage = stage;
        run.options.prefetch_bytes = stage == 2 ? 0 : 6000;
        expect_same_bits(train_ranks<TypeParam>(run), reference, text_of(run));
      }
    }
}

TYPED_TEST(Wire, AllIsNearWhatAnExactRunGives) {
  ShardedRun run = coded_run(4, {});
  run.options.optimizer = kPlainSgd;
  const auto exact = train_ranks<TypeParam>(run);
  run.options.wire = kWeights;
  const auto coded = train_ranks<TypeParam>(run);
  EXPECT_NE(coded[0].hashes.back(), exact[0].hashes.back());
  expect_near(coded[0], exact[0], 0.1, text_of(run));
  run.options.wire = {.reduce = WireType::int8, .node_size = 2};
  expect_near(train_ranks<TypeParam>(run)[0], exact[0], 0.1, text_of(run));
}

TYPED_TEST(Wire, NodesAndTheirCopiesChangeNoBit) {
  for (const WireOptions& wire : {WireOptions{}, kAll}) {
    ShardedRun run = coded_run(4, wire, DType::bf16, 2);
    const auto reference = train_ranks<TypeParam>(run);
    run.options.wire.node_size = 2;
    run.options.wire.node_copy = true;
    expect_same_bits(train_ranks<TypeParam>(run), reference, text_of(run));
    run.options.activation_checkpointing = true;
    expect_same_bits(train_ranks<TypeParam>(run), reference, text_of(run) + ", checkpoints");
  }
}

// A rank alone sends nothing, and loses nothing.
TYPED_TEST(Wire, ARankAloneIsExact) {
  ShardedRun run = coded_run(1, {});
  const auto exact = train_ranks<TypeParam>(run);
  run.options.wire = {.gather = WireType::int8, .reduce = WireType::int4, .node_copy = true};
  expect_same_bits(train_ranks<TypeParam>(run), exact, text_of(run));
}

TEST(WirePlaces, WhereStatesLiveChangesNoBit) {
  const TestDirectory files;
  WireOptions wire = kAll;
  wire.node_copy = true;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    ShardedRun run = clipped_run_in_tiers(4, dtype, 2, files.path());
    run.options.wire = wire;
    const auto reference = train_ranks<Deep>(run);
    for (const Shares& params : {Shares{1, 0}, Shares{0, 1}, Shares{0.5, 0.2}})
      for (const Shares& optimizer : {Shares{0, 0}, Shares{1, 0}, Shares{0.3, 0.4}}) {
        run.options.placement.params = params;
        run.options.placement.optimizer = optimizer;
        expect_same_bits(train_ranks<Deep>(run), reference,
                         fmt::format("{}, parameters {}, optimizer {}", text_of(run), zeepo::text_of(params),
                                     zeepo::text_of(optimizer)));
      }
  }
}

TEST(WirePlaces, StepsInTheBackwardPassGiveTheSameBits) {
  ShardedRun run = coded_run(4, kAll);
  run.options.clip = 0;
  const auto reference = train_ranks<Deep>(run);
  run.options.step_phase = StepPhase::in_backward;
  run.options.wire.node_copy = true;
  expect_same_bits(train_ranks<Deep>(run), reference, text_of(run));
}

// Blocks of codes do not depend on where the shards are cut.
TEST(WirePlaces, WeightsInCodesAreTheSameOnAnyNumberOfRanksFromTwo) {
  ShardedRun run = coded_run(2, kWeights, DType::f32, 2);
  run.infers = false;
  const auto reference = train_ranks<Deep>(run);
  run = coded_run(4, kWeights, DType::f32, 1);
  run.infers = false;
  run.options.wire.node_size = 2;
  const auto other = train_ranks<Deep>(run);
  EXPECT_EQ(other[0].hashes, reference[0].hashes);
  EXPECT_EQ(bits(other[0].norms), bits(reference[0].norms));
}

TEST(WireBytes, CodesAndCopiesSendWhatTheySay) {
  ShardedRun run = coded_run(4, {.node_size = 2}, DType::bf16);
  run.infers = false;
  const CommBytes exact = train_ranks<Deep>(run)[1].sent;
  run.options.wire.gather = WireType::int8;
  const CommBytes weights = train_ranks<Deep>(run)[1].sent;
  EXPECT_LT(weights.all_gather, exact.all_gather * 3 / 4);
  EXPECT_EQ(weights.reduce_scatter, exact.reduce_scatter);
  run.options.wire.reduce = WireType::int4;
  const CommBytes both = train_ranks<Deep>(run)[1].sent;
  EXPECT_EQ(both.all_gather, weights.all_gather);
  EXPECT_LT(both.reduce_scatter, exact.reduce_scatter / 2);
  run.options.wire.node_copy = true;
  const CommBytes copies = train_ranks<Deep>(run)[1].sent;
  EXPECT_LT(copies.all_gather, both.all_gather);
  EXPECT_LT(copies.between_nodes, both.between_nodes);
  EXPECT_LT(both.between_nodes, weights.between_nodes);
  EXPECT_LT(weights.between_nodes, exact.between_nodes);
  EXPECT_GT(copies.between_nodes, 0);
}

TEST(WireBytes, OnOneNodeNothingLeavesIt) {
  ShardedRun run = coded_run(3, {.gather = WireType::int8, .reduce = WireType::int8, .node_copy = true});
  EXPECT_EQ(train_ranks<Deep>(run)[0].sent.between_nodes, 0);
}

TEST(WireOverflow, AnInfiniteGradientIsFoundAndSkipped) {
  ShardedRun run = coded_run(4, kAll, DType::f16);
  run.options.loss_scale = {.initial = 128};
  run.poisoned_rank = 2;
  run.poisoned_step = 1;
  const auto results = train_ranks<Deep>(run);
  EXPECT_TRUE(results[0].skipped[1]);
  EXPECT_FALSE(results[0].skipped[2]);
}

TEST(WireOptions, WhatCannotBeIsRefused) {
  const auto refused = [](const EngineOptions& options) { return error_text([&] { check(options); }); };
  EXPECT_TRUE(names(refused({.stage = 0, .wire = kWeights}), "stage 0", "stage 1"));
  EXPECT_TRUE(names(refused({.stage = 2, .wire = {.node_copy = true}}), "stage 2", "stage 3"));
  EXPECT_TRUE(names(refused({.stage = 3, .wire = {.gather = WireType::int4}}), "int8"));
  EXPECT_TRUE(names(refused({.stage = 3, .wire = {.feedback = true}}), "int4"));
  ShardedRun run = coded_run(3, {.node_size = 2});
  EXPECT_TRUE(names(error_text([&] { train_ranks<Deep>(run); }), "2", "3", "--node-size"));
}

}  // namespace
}  // namespace zeepo
