#include "zeepo/zero/state_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tests/support/errors.h"
#include "tests/zero/room_rig.h"

namespace zeepo {
namespace {

EngineOptions tiered(StepSide side) {
  EngineOptions options{.dtype = DType::bf16, .stage = 3};
  options.piece_elements = EngineOptions::kPieceAlignment;
  options.placement.optimizer = {.host = 0.5, .nvme = 0.3};
  options.placement.params = {.host = 0.5};
  options.step_below_on = side;
  return options;
}

TEST(StatePlan, ShardsCoverEachUnitOnAnyNumberOfRanks) {
  const UnitPlan units = plain_units({5, 3000, 1, 700}, true);
  for (const int ranks : {1, 2, 3, 7, 1000})
    for (const int stage : {0, 1, 2, 3}) {
      std::vector<std::int64_t> covered(units.units.size());
      for (int rank = 0; rank < ranks; ++rank) {
        const StatePlan plan = plan_states(units, {.stage = stage}, {rank, ranks, ranks == 1});
        for (std::size_t u = 0; u < plan.units.size(); ++u) {
          EXPECT_EQ(plan.units[u].own.begin, covered[u]);
          covered[u] = plan.units[u].own.end;
          std::int64_t stepped = 0;
          for (const auto& piece : plan.units[u].pieces) stepped += piece.extent.elements();
          EXPECT_EQ(stepped, plan.units[u].stepped.elements());
          EXPECT_EQ(plan.units[u].stepped == plan.units[u].whole, stage == 0 || ranks == 1);
        }
      }
      for (std::size_t u = 0; u < covered.size(); ++u) EXPECT_GE(covered[u], units.units[u].elements);
    }
}

TEST(StatePlan, AStageSaysWhatIsKeptWhole) {
  const UnitPlan units = plain_units({3000, 3000});
  const auto kept = [&](int stage) {
    const StatePlan plan = plan_states(units, {.stage = stage}, {1, 4, false});
    return std::pair(plan.units[0].params_whole, plan.units[0].gradients);
  };
  EXPECT_EQ(kept(0), std::pair(true, GradientsKept::whole));
  EXPECT_EQ(kept(1), std::pair(true, GradientsKept::whole));
  EXPECT_EQ(kept(2), std::pair(true, GradientsKept::shard));
  EXPECT_EQ(kept(3), std::pair(false, GradientsKept::shard));
}

// Embedding, blocks, head. Half of the weights are offloaded all the same.
TEST(StatePlan, TheLargestUnitsStayOnTheDeviceFirstInInference) {
  const UnitPlan units = plain_units({12'000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 4000, 12'000});
  const auto on_host = [&](Use use, double host) {
    EngineOptions options{.use = use, .dtype = DType::bf16};
    options.placement.params = {.host = host};
    std::vector<bool> there;
    for (const UnitStates& unit : plan_states(units, options, {0, 1, true}).units)
      there.push_back(unit.params_offloaded());
    return there;
  };
  const std::vector<bool> half = on_host(Use::infer, 0.5);
  EXPECT_FALSE(half.front());
  EXPECT_FALSE(half.back());
  EXPECT_EQ(std::ranges::count(half, true), 8);
  const std::vector<bool> most = on_host(Use::infer, 0.75);  // room for one of the two
  EXPECT_EQ(most.front() + most.back(), 1);
  EXPECT_EQ(std::ranges::count(on_host(Use::infer, 1.0), true), 12);
}

TEST(StatePlan, DeferredPiecesComeInForwardOrderAndInBackwardOrderInsideABackwardPass) {
  const UnitPlan units = plain_units({3000, 2000, 2500}, true);
  EngineOptions options = tiered(StepSide::host);
  options.clip = 0;
  for (const StepPhase phase : {StepPhase::after_backward, StepPhase::in_backward}) {
    options.step_phase = phase;
    const StatePlan plan = plan_states(units, options, {});
    std::vector<std::size_t> order;
    for (const PieceId& id : plan.deferred)
      if (order.empty() || order.back() != id.unit) order.push_back(id.unit);
    std::vector<std::size_t> expected{2, 0, 1};  // no visit asks for the last unit: it is stepped first
    if (phase == StepPhase::in_backward) std::ranges::reverse(expected);
    EXPECT_EQ(order, expected);
    for (const std::size_t u : {0u, 1u, 2u}) {
      const std::size_t end = plan.deferred_end[u];
      EXPECT_EQ(plan.deferred[end - 1].unit, u);
    }
  }
}

TEST(StatePlan, SharesAreDealtOverPiecesAndSides) {
  const UnitPlan units = plain_units({100000, 100000, 100000});
  EngineOptions options = tiered(StepSide::device);
  options.placement.params = {};
  options.host_pieces_under_way = 2;
  const StatePlan plan = plan_states(units, options, {});
  std::array<int, 3> places{};
  for (const auto& unit : plan.units)
    for (const auto& piece : unit.pieces) ++places[static_cast<std::size_t>(piece.place)];
  const int all = places[0] + places[1] + places[2];
  EXPECT_NEAR(places[1], 0.5 * all, 1);
  EXPECT_NEAR(places[2], 0.3 * all, 1);
  // Of pieces in host memory; those in files are the device's.
  for (const double share : {0.0, 0.25, 1.0}) {
    const auto sides = deal_sides(plan, share);
    EXPECT_NEAR(static_cast<double>(std::ranges::count(sides, SteppedBy::host_beside)), share * places[1], 1);
  }
}

TEST(StatePlan, WhatPassesThroughABufferIsWhatItsStepperCannotReach) {
  const UnitPlan units = plain_units({3000, 3000, 3000, 3000});
  for (const StepSide side : {StepSide::host, StepSide::device}) {
    const StatePlan plan = plan_states(units, tiered(side), {});
    for (const PieceId& id : plan.deferred) {
      const PiecePlan& piece = plan.piece(id);
      const SlotParts parts = slot_parts(plan, id, piece.stepped_by);
      const auto away = [&](Place place) {
        return side == StepSide::host ? place == Place::nvme : place != Place::device;
      };
      EXPECT_EQ(parts.states.has_value(), away(piece.place));
      EXPECT_EQ(parts.grads.has_value(), side == StepSide::host && piece.place == Place::nvme);
      EXPECT_EQ(slot_parts(plan, id, SteppedBy::host_beside).bytes, 0u);
      EXPECT_LE(parts.bytes, largest_slot(plan));
    }
  }
}

// Otherwise a buffer of nothing would be wanted, and there is none.
TEST(StatePlan, APieceWithoutStatePassesThroughNoBuffer) {
  EngineOptions options = tiered(StepSide::device);
  options.dtype = DType::f32;
  options.optimizer = {.type = OptimizerType::sgd, .momentum = 0};
  const StatePlan plan = plan_states(plain_units({3000, 3000, 3000, 3000}), options, {});
  ASSERT_FALSE(plan.deferred.empty());
  for (const PieceId& id : plan.deferred) {
    const SlotParts parts = slot_parts(plan, id, plan.piece(id).stepped_by);
    EXPECT_FALSE(parts.states.has_value());
    EXPECT_EQ(parts.bytes > 0, parts.params.has_value() || parts.grads.has_value());
  }
}

// Stage 0 keeps its gradients until all ranks have gathered them.
TEST(StatePlan, StageZeroOnSeveralRanksStepsAfterTheBackwardPass) {
  const UnitPlan units = plain_units({3000});
  const EngineOptions options{.clip = 0, .step_phase = StepPhase::in_backward};
  EXPECT_TRUE(plan_states(units, options, {}).steps_in_backward());
  EXPECT_FALSE(plan_states(units, options, {0, 2, false}).steps_in_backward());
  EXPECT_FALSE(plan_states(units, {.accumulation = 2, .sum_order = SumOrder::local}, {0, 2, false}).ops_add_to_sums());
}

TEST(StatePlan, RefusesWhatContradictsItself) {
  const UnitPlan units = plain_units({3000});
  EXPECT_TRUE(names(error_text([&] { (void)plan_states(units, {.stage = 4}, {}); }), "stage 4"));
  EngineOptions options = tiered(StepSide::host);
  options.accumulation = 2;
  options.sum_order = SumOrder::local;
  EXPECT_TRUE(names(error_text([&] { (void)plan_states(units, options, {}); }), "sum order local", "global"));
}

}  // namespace
}  // namespace zeepo
