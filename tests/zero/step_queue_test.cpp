// What is stepped when, on gradients that are all ones.
#include "zeepo/zero/step_queue.h"

#include <gtest/gtest.h>

#include "tests/zero/room_rig.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/state_io.h"

namespace zeepo {
namespace {

struct Rig {
  explicit Rig(const EngineOptions& options)
      : session(small_session()),
        units(plain_units({1500, 1200, 1100}, true)),
        plan(plan_states(units, options, {})),
        store(units, plan),
        buffers(units, plan, store),
        collectives(session.communicator(), Collectives::Overlap::yes),
        weights(units, plan, store, collectives),
        norm(plan, collectives),
        reducer(units, plan, store, norm, collectives),
        snapshot(units, plan, store),
        steps(units, plan, {store, buffers, reducer, norm, weights, snapshot}),
        io(units, plan, store, collectives) {
    io.load([](const WeightSlice&, std::int64_t, std::span<float> out) { std::ranges::fill(out, 1.0f); });
  }
  // Gradients of one in all elements, where they are to be stepped.
  void gradients_of(std::size_t u) {
    reducer.begin({0, 1});
    for (const std::size_t p : {0u, 1u}) {
      const GradientTarget to = reducer.target({u, p});
      launch([&](auto& s) { fill(s, to.tensor.view(), 1); });
    }
    ASSERT_TRUE(reducer.close(u));
    reducer.start(u);
    reducer.wait_for_oldest();
    reducer.keep_oldest();
  }
  // Whether the unit has been stepped: SGD takes 0.5 off each weight.
  bool stepped(std::size_t u) {
    session.lower().drain();
    store.drain();
    float value = 0;
    io.read("unit" + std::to_string(u) + ".matrix", 5, std::span(&value, 1));
    EXPECT_TRUE(value == 1.0f || value == 0.5f) << value;
    return value == 0.5f;
  }
  std::vector<bool> all_stepped() { return {stepped(0), stepped(1), stepped(2)}; }

  Session session;
  UnitPlan units;
  StatePlan plan;
  StateStore store;
  PieceBuffers buffers;
  Collectives collectives;
  WeightStream weights;
  GradientNorm norm;
  GradientReducer reducer;
  StateSnapshot snapshot;
  StepQueue steps;
  StateIo io;
};

EngineOptions sgd() {
  EngineOptions options{.stage = 3};
  options.optimizer = {.type = OptimizerType::sgd, .momentum = 0, .weight_decay = 0};
  options.clip = 0;
  options.piece_elements = EngineOptions::kPieceAlignment;
  return options;
}

TEST(StepQueue, DeferredPiecesAreSteppedBeforeTheUnitsNextUse) {
  for (const StepSide side : {StepSide::host, StepSide::device}) {
    EngineOptions options = sgd();
    options.placement.optimizer.host = 1;
    options.placement.params.host = 1;
    options.step_below_on = side;
    Rig rig(options);
    for (const std::size_t u : {0u, 1u, 2u}) rig.gradients_of(u);
    rig.reducer.end();
    rig.norm.finish();
    for (const std::size_t u : {0u, 1u, 2u}) rig.steps.step_now(u, {1, 0.5});
    (void)rig.norm.take();
    EXPECT_EQ(rig.all_stepped(), (std::vector{false, false, false}));
    rig.steps.ready_all({1, 0.5});
    EXPECT_EQ(rig.all_stepped(), (std::vector{false, false, false}));
    rig.steps.until(2);  // always there: first in the order
    EXPECT_EQ(rig.all_stepped(), (std::vector{false, false, true}));
    rig.steps.until(0);
    EXPECT_EQ(rig.all_stepped(), (std::vector{true, false, true}));
    rig.steps.finish();
    EXPECT_EQ(rig.all_stepped(), (std::vector{true, true, true}));
  }
}

TEST(StepQueue, StateOnTheDeviceIsSteppedAtOnce) {
  Rig rig(sgd());
  for (const std::size_t u : {0u, 1u, 2u}) rig.gradients_of(u);
  rig.reducer.end();
  rig.norm.finish();
  rig.steps.step_now(1, {1, 0.5});
  EXPECT_EQ(rig.all_stepped(), (std::vector{false, true, false}));
}

// Out of turn a unit waits for those before it, since pieces pass through the buffers in one order.
TEST(StepQueue, InsideABackwardPassUnitsAreSteppedAsTheyBecomeReady) {
  EngineOptions options = sgd();
  options.step_phase = StepPhase::in_backward;
  options.placement.optimizer.host = 1;
  Rig rig(options);
  rig.steps.begin_in_backward({1, 0.5});
  rig.gradients_of(0);
  rig.steps.ready(rig.reducer.take_complete());
  EXPECT_EQ(rig.all_stepped(), (std::vector{false, false, false}));
  rig.gradients_of(1);
  rig.steps.ready(rig.reducer.take_complete());
  EXPECT_EQ(rig.all_stepped(), (std::vector{true, true, false}));
  rig.gradients_of(2);
  rig.steps.ready(rig.reducer.take_complete());
  EXPECT_EQ(rig.all_stepped(), (std::vector{true, true, true}));
}

TEST(StepQueue, WhatAnAbandonedPassHasNotComeToIsNotStepped) {
  EngineOptions options = sgd();
  options.step_phase = StepPhase::in_backward;
  options.placement.optimizer.host = 1;
  Rig rig(options);
  rig.steps.begin_in_backward({1, 0.5});
  rig.gradients_of(1);
  rig.steps.ready(rig.reducer.take_complete());
  rig.reducer.abandon();
  rig.steps.abandon();
  rig.steps.finish();
  EXPECT_EQ(rig.all_stepped(), (std::vector{false, true, false}));
}

}  // namespace
}  // namespace zeepo
