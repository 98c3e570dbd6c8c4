// Gradients from ops to the shard's sum, without a model or steps.
#include "zeepo/zero/gradient_reducer.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/zero/room_rig.h"
#include "zeepo/base/rng.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// What micro-batch `number` gives for element i of the matrix of unit 0, in the training dtype.
float part(DType dtype, std::int64_t number, std::int64_t i) {
  const float value = normal(mix(RngKey{9}, static_cast<std::uint64_t>(number)), static_cast<std::uint64_t>(i));
  if (dtype == DType::bf16) return to_float(from_float<bf16>(value));
  return value;
}

struct Rig {
  Rig(const UnitPlan& all, Communicator& communicator, const EngineOptions& options)
      : session(small_session(), communicator),
        units(all),
        plan(plan_states(units, options, place_of(communicator))),
        store(units, plan),
        collectives(communicator, Collectives::Overlap::yes),
        norm(plan, collectives),
        reducer(units, plan, store, norm, collectives) {}

  void write(const ParameterId& id, std::int64_t number) {
    const GradientTarget to = reducer.target(id);
    const std::int64_t n = to.tensor.elements();
    const Tensor values({n}, DType::f32);
    for (std::int64_t i = 0; i < n; ++i) values.view().as<float>()[i] = part(plan.options.dtype, number, i);
    launch([&](auto& s) {
      if (to.write == Write::add)
        add(s, to.tensor.view(), values.view(), to.tensor.view());
      else
        copy(s, values.view(), to.tensor.view());
    });
  }
  void finish() {
    while (reducer.under_way()) {
      reducer.wait_for_oldest();
      reducer.keep_oldest();
    }
    reducer.end();
  }
  void micro_step(std::int64_t m) {
    reducer.begin({m, plan.options.accumulation});
    for (std::size_t u = 0; u < plan.units.size(); ++u) {
      write({u, 0}, m * plan.ranks.size + plan.ranks.rank);
      if (!reducer.close(u)) continue;
      while (!reducer.has_room_for(u)) {
        reducer.wait_for_oldest();
        reducer.keep_oldest();
      }
      reducer.start(u);
    }
    finish();
  }

  Session session;
  const UnitPlan& units;
  StatePlan plan;
  StateStore store;
  Collectives collectives;
  GradientNorm norm;
  GradientReducer reducer;
};

// One sequence in the order of the global micro-batch number, in fp32, rounded once at the end.
TEST(GradientReducer, SumsInTheOrderOfMicroBatchesOnAnyNumberOfRanks) {
  const UnitPlan units = plain_units({7, 9});
  constexpr std::int64_t kBatches = 6;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int stage : {0, 2, 3})
      for (const int ranks : {1, 2, 3, 6}) {
        ThreadsWorld world(ranks);
        run(world, [&](Communicator& communicator) {
          Rig rig(units, communicator, {.dtype = dtype, .stage = stage, .accumulation = kBatches / ranks});
          for (std::int64_t m = 0; m < kBatches / ranks; ++m) rig.micro_step(m);
          const Extent own = common(rig.plan.units[1].own, {0, 9 * 128});
          const auto sums = rig.store.gradients(1, rig.plan.units[1].own).to_floats();
          for (std::int64_t i = own.begin; i < own.end; ++i) {
            float sum = part(dtype, 0, i);
            for (std::int64_t g = 1; g < kBatches; ++g) sum += part(dtype, g, i);
            if (dtype == DType::bf16) sum = to_float(from_float<bf16>(sum));
            ASSERT_EQ(sums[static_cast<std::size_t>(i - own.begin)], sum)
                << ranks << " ranks, stage " << stage << ", element " << i;
          }
        });
      }
}

TEST(GradientReducer, AnUnusedParameterHasAZeroGradientAndUsesAdd) {
  const UnitPlan units = plain_units({7});
  ThreadsWorld world(1);
  run(world, [&](Communicator& communicator) {
    Rig rig(units, communicator, {});
    rig.reducer.begin({0, 1});
    rig.write({0, 0}, 0);
    rig.write({0, 0}, 1);  // a second use
    EXPECT_TRUE(rig.reducer.close(0));
    EXPECT_FALSE(rig.reducer.close(0));
    EXPECT_TRUE(names(error_text([&] { (void)rig.reducer.target({0, 1}); }), "unit0", "after the last visit"));
    rig.reducer.start(0);
    rig.finish();
    const auto sums = rig.store.gradients(0, rig.plan.units[0].own).to_floats();
    for (std::int64_t i = 0; i < 7 * 128; ++i)
      ASSERT_EQ(sums[static_cast<std::size_t>(i)], part(DType::f32, 0, i) + part(DType::f32, 1, i));
    for (std::size_t i = 7 * 128; i < sums.size(); ++i) ASSERT_EQ(sums[i], 0);
  });
}

TEST(GradientReducer, WhatIsAbandonedLeavesNothing) {
  const UnitPlan units = plain_units({7, 9});
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    Rig rig(units, communicator, {.stage = 3});
    const std::int64_t before = rig.session.memory().current().total;
    rig.reducer.begin({0, 1});
    rig.write({0, 0}, 0);
    EXPECT_TRUE(rig.reducer.close(0));
    rig.reducer.start(0);
    rig.write({1, 0}, 0);
    rig.reducer.outlast();
    rig.reducer.abandon();
    EXPECT_EQ(rig.session.memory().current().total, before);
    rig.micro_step(0);
    EXPECT_FALSE(rig.reducer.under_way());
  });
}

}  // namespace
}  // namespace zeepo
