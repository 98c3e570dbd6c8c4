// Weights and gradients in codes: what is lost is lost in the same way at every stage and in every place, and nothing
// is lost where nothing is coded.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/forwarding_communicator.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/comm/device_communicator.h"
#include "zeepo/comm/wire_codec.h"

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

TYPED_TEST(Wire, GradientsInInt8AreNearWhatAnExactRunGives) {
  ShardedRun run = coded_run(4, {});
  run.options.optimizer = kPlainSgd;
  const auto exact = train_ranks<TypeParam>(run);
  run.options.wire = {.reduce = WireType::int8, .node_size = 2};
  expect_near(train_ranks<TypeParam>(run)[0], exact[0], 0.02, text_of(run));
}

using Weights = std::map<std::string, std::vector<float>>;

// As messages tell them: parameters begin at whole blocks.
std::vector<float> coded(const std::vector<float>& values) {
  std::vector<float> result;
  for (std::size_t at = 0; at < values.size(); at += kWireBlock) {
    const std::size_t count = std::min<std::size_t>(kWireBlock, values.size() - at);
    float block[kWireBlock] = {}, decoded[kWireBlock];
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(at), count, block);
    std::uint8_t codes[kWireBlock];
    const std::uint16_t scale = encode_block(WireType::int8, block, codes);
    decode_block(WireType::int8, scale, codes, decoded);
    result.insert(result.end(), decoded, decoded + count);
  }
  return result;
}

// The rule itself, by a rank alone: gradients are those of the coded weights, and step the exact ones.
struct StepsByHand {
  std::vector<float> losses;
  Weights weights;
};
template <class Model>
StepsByHand steps_by_hand(const ShardedRun& run) {
  EngineOptions options = run.options;
  options.wire = {};
  options.accumulation = run.ranks;
  Session session({.threads = 1, .device_bytes = run.device_bytes});
  Model model;
  ModelEngine engine(model, alone(), options);
  // Units that always stay whole are sent exactly.
  std::set<std::string> sent;
  const StatePlan plan = plan_states(engine.units(), run.options, {.rank = 0, .size = run.ranks, .alone = false});
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    if (plan.units[u].gathered_as != WireType::same)
      for (const UnitParameter& parameter : engine.units().units[u].parameters)
        for (const UnitWeight& weight : parameter.weights) sent.insert(weight.slice.name);
  StepsByHand result;
  for (const WeightSlice& slice : engine.slices()) result.weights[slice.name] = first_weights(slice);
  for (int step = 0; step < run.steps; ++step) {
    Weights before;
    for (const auto& [name, values] : result.weights) before[name] = sent.contains(name) ? coded(values) : values;
    engine.load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      std::copy_n(before.at(slice.name).begin() + begin, out.size(), out.begin());
    });
    for (int rank = 0; rank < run.ranks; ++rank)
      engine.micro_step(
          [&] { return loss_of(model, Rows((step * run.ranks + rank) * run.rows, run.rows), options.dtype, step); });
    result.losses.push_back(engine.step(run.lr).loss);
    Weights after;
    read_all(engine, after);
    for (auto& [name, values] : result.weights)
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += after.at(name)[i] - before.at(name)[i];
  }
  return result;
}

TYPED_TEST(Wire, CodedWeightsGiveTheGradientsAndExactOnesAreStepped) {
  ShardedRun run = coded_run(4, kWeights);
  run.options.optimizer = kPlainSgd;
  run.options.clip = 0;
  run.steps = 6;
  run.infers = false;
  const StepsByHand expected = steps_by_hand<TypeParam>(run);
  const ShardedResult result = train_ranks<TypeParam>(run)[0];
  EXPECT_EQ(result.losses[0], expected.losses[0]);
  for (std::size_t i = 0; i < expected.losses.size(); ++i)
    EXPECT_NEAR(result.losses[i], expected.losses[i], 1e-5 * expected.losses[i]) << "step " << i;
  for (const auto& [name, values] : expected.weights)
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(result.weights.at(name)[i], values[i], 1e-5) << name << "[" << i << "]";
  run.options.wire = {};
  EXPECT_NE(train_ranks<TypeParam>(run)[0].hashes.back(), result.hashes.back());
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

// With Reduce::last a rank's own sum is coded, once a step.
TEST(WirePlaces, SumsOfMicroStepsAreCodedOnce) {
  ShardedRun run = coded_run(4, {}, DType::f32, 2);
  run.options.stage = 1;
  run.options.optimizer = kPlainSgd;
  const auto exact = train_ranks<Deep>(run);
  run.options.wire = {.reduce = WireType::int8, .node_size = 2};
  const auto each = train_ranks<Deep>(run);
  run.options.reduce = Reduce::last;
  const auto last = train_ranks<Deep>(run);
  expect_near(last[0], exact[0], 0.02, text_of(run));
  EXPECT_EQ(2 * last[0].sent.reduce_scatter, each[0].sent.reduce_scatter);
  expect_same_bits(train_ranks<Deep>(run), last, text_of(run));
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

// Ranks that stand on other nodes than those of another communicator, which is borrowed; and, for a CPU in a GPU's
// place, with collectives of their own on the memory of the device.
class PlacedRanks final : public ForwardingCommunicator {
 public:
  enum class Memory { host, device };

  PlacedRanks(Communicator& inner, std::vector<int> nodes, Memory memory = Memory::host)
      : ForwardingCommunicator(inner), nodes_(std::move(nodes)) {
    if (memory == Memory::device) device_ = through_host(stream_, inner, {});
  }
  std::string_view name() const override { return "placed"; }
  std::vector<int> nodes() const override { return nodes_; }
  DeviceCommunicator* on_device() override { return device_.get(); }

 private:
  std::vector<int> nodes_;
  ThreadPool pool_{1};
  CpuStream stream_{pool_};
  std::unique_ptr<DeviceCommunicator> device_;
};

template <class Model>
std::vector<ShardedResult> train_placed(const ShardedRun& run, const std::vector<int>& nodes,
                                        PlacedRanks::Memory memory = PlacedRanks::Memory::host) {
  std::vector<ShardedResult> results(static_cast<std::size_t>(run.ranks));
  ThreadsWorld world(run.ranks);
  zeepo::run(world, [&](Communicator& inner) {
    PlacedRanks communicator(inner, nodes, memory);
    results[static_cast<std::size_t>(inner.rank())] = train_rank<Model>(run, communicator);
  });
  for (const ShardedResult& result : results) EXPECT_EQ(result.hashes, results[0].hashes) << text_of(run);
  return results;
}

constexpr auto kAsOnAGpu = PlacedRanks::Memory::device;

std::int64_t sent_between_nodes(const std::vector<ShardedResult>& results) {
  std::int64_t bytes = 0;
  for (const ShardedResult& result : results) bytes += result.sent.between_nodes;
  return bytes;
}

// A GPU's memory goes through the host's; here a CPU stands in its place.
TYPED_TEST(Wire, ThroughHostMemoryHasTheBitsOfMessagesMadeInPlace) {
  const std::vector<int> nodes{0, 0, 1, 1};
  WireOptions feedback = kAll, copied{.node_copy = true};
  feedback.feedback = feedback.node_copy = true;
  for (const WireOptions& wire : {kWeights, kGradients, feedback, copied})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int stage : {1, 2, 3}) {
        ShardedRun run = coded_run(4, wire, dtype, dtype == DType::bf16 ? 2 : 1);
        run.options.stage = stage;
        if (stage < 3) run.options.wire.node_copy = false;
        expect_same_bits(train_placed<TypeParam>(run, nodes, kAsOnAGpu), train_placed<TypeParam>(run, nodes),
                         text_of(run));
      }
}

TEST(WireNodes, UnlikeNumbersOfRanksGiveTheBitsOfEveryStage) {
  for (const std::vector<int>& nodes : {std::vector{0, 0, 1}, std::vector{0, 1, 1, 1}, std::vector{0, 1, 0, 2, 0}}) {
    const auto ranks = static_cast<int>(nodes.size());
    ShardedRun run = coded_run(ranks, {}, DType::bf16, 2);
    const auto exact = train_placed<Deep>(run, nodes);
    expect_same_bits(exact, train_ranks<Deep>(run), text_of(run));
    run.options.wire.node_copy = true;
    expect_same_bits(train_placed<Deep>(run, nodes), exact, text_of(run));
    run.options.wire = {.gather = WireType::int8, .reduce = WireType::int4};
    const auto reference = train_placed<Deep>(run, nodes);
    for (const int stage : {1, 2}) {
      run.options.stage = stage;
      expect_same_bits(train_placed<Deep>(run, nodes), reference, text_of(run));
    }
    run.options.stage = 3;
    run.options.wire.node_copy = true;
    const auto copied = train_placed<Deep>(run, nodes), through = train_placed<Deep>(run, nodes, kAsOnAGpu);
    expect_same_bits(copied, reference, text_of(run));
    expect_same_bits(through, reference, text_of(run));
    for (const auto& sends_less : {copied, through})
      EXPECT_LT(sent_between_nodes(sends_less), sent_between_nodes(reference)) << text_of(run);
  }
}

// Where each rank is a node its gradients are coded on the way between nodes.
TEST(WireNodes, ARankAloneOnItsNodeFeedsBackWhatItsCodesLose) {
  WireOptions wire{.reduce = WireType::int4};
  const auto trained = [&](const std::vector<int>& nodes, bool feedback) {
    wire.feedback = feedback;
    return train_placed<Deep>(coded_run(static_cast<int>(nodes.size()), wire), nodes);
  };
  const auto on_one = trained({0, 0, 0}, true), apart = trained({0, 1, 2}, true);
  expect_same_bits(apart, on_one, "three nodes of one rank");
  EXPECT_NE(apart[0].hashes.back(), trained({0, 1, 2}, false)[0].hashes.back());
  EXPECT_EQ(trained({0, 1, 2}, false)[0].hashes, trained({0, 0, 0}, false)[0].hashes);
}

TEST(WireNodes, OnAGpuThePlanHoldsWhatMessagesPassThrough) {
  ThreadsWorld world(4);
  const auto planned = [&](Backend backend, const WireOptions& wire, Place place) {
    const Session session = Session::dry(world.communicator(0), {}, backend);
    WireLane lane(world.communicator(0), wire);
    lane.take_room({{.shard_elements = 1024, .gathered_as = wire.gather, .reduced_as = wire.reduce, .node_copy = true}},
                   DType::bf16, wire.feedback);
    const HostRoom copy = lane.node_copy_room(wire.gather, DType::bf16, 1024);
    return session.peak(place).total;
  };
  constexpr std::int64_t kWhole = 4 * 1024 * 2;
  const auto message = static_cast<std::int64_t>(message_bytes(WireType::int8, DType::bf16, 1024));
  const WireOptions one_node{.gather = WireType::int8},
      nodes{.gather = WireType::int8, .node_copy = true, .node_size = 2};
  EXPECT_EQ(planned(Backend::cpu, one_node, Place::device), 4 * message);
  EXPECT_EQ(planned(Backend::cpu, one_node, Place::host), 0);
  EXPECT_EQ(planned(Backend::cuda, one_node, Place::device), 0);
  EXPECT_EQ(planned(Backend::cuda, one_node, Place::host), 4 * message + kWhole);
  EXPECT_EQ(planned(Backend::cuda, nodes, Place::host), 4 * message + kWhole + 2 * message);
  EXPECT_EQ(planned(Backend::cuda, {.node_copy = true}, Place::host), 0);  // one node needs no copy
  const WireOptions ring{.gather_way = GatherWay::ring};
  EXPECT_TRUE(names(error_text([&] { planned(Backend::cuda, ring, Place::host); }), "ring", "CPUs"));
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
