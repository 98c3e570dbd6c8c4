// Norm and loss of one step, without a model: the same bits on any number of ranks.
#include "zeepo/zero/gradient_norm.h"

#include <gtest/gtest.h>

#include "tests/zero/room_rig.h"
#include "zeepo/base/rng.h"

namespace zeepo {
namespace {

float gradient_at(std::size_t unit, std::int64_t i) {
  return normal(mix(RngKey{3}, static_cast<std::uint64_t>(unit)), static_cast<std::uint64_t>(i)) *
         static_cast<float>(1 + i % 7);
}
float loss_of(std::int64_t micro_batch) { return 2.0f + normal(RngKey{5}, static_cast<std::uint64_t>(micro_batch)); }

struct Outcome {
  float norm, factor, loss;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome measured(int ranks, std::int64_t micro_batches, float clip) {
  const UnitPlan units = plain_units({1700, 3, 900});
  Outcome outcome{};
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) {
    Session session(small_session(), communicator);
    const std::int64_t count = micro_batches / ranks;
    const EngineOptions options{.stage = 2, .accumulation = count, .clip = clip};
    const StatePlan plan = plan_states(units, options, place_of(communicator));
    Collectives collectives(communicator, Collectives::Overlap::yes);
    GradientNorm norm(plan, collectives);
    for (std::int64_t m = 0; m < count; ++m) {
      const float loss = loss_of(m * ranks + communicator.rank());
      norm.add_loss(Tensor::from<float>(std::span(&loss, 1), {1}).view(), {m, count});
    }
    for (std::size_t u = 0; u < plan.units.size(); ++u) {
      const Extent& own = plan.units[u].own;
      const Tensor gradients({own.elements()}, DType::f32);
      for (std::int64_t i = own.begin; i < own.end; ++i)
        gradients.view().as<float>()[i - own.begin] = i < units.units[u].elements ? gradient_at(u, i) : 0;
      norm.measure(u, gradients);
    }
    // The largest note of any rank comes back on all of them.
    norm.finish(communicator.rank() == ranks / 2 ? 15.0f : 2.0f);
    const StepControl control = norm.take();
    EXPECT_EQ(control.skip, 0);
    EXPECT_EQ(norm.note(), 15);
    if (communicator.rank() == 0) outcome = {control.norm, control.grad_factor, norm.loss()};
  });
  return outcome;
}

TEST(GradientNorm, HasTheSameBitsOnAnyNumberOfRanks) {
  for (const std::int64_t micro_batches : {12, 240}) {  // 240: more than are sent together
    const Outcome alone = measured(1, micro_batches, 0.5f);
    for (const int ranks : {2, 3, 4, 6}) EXPECT_EQ(measured(ranks, micro_batches, 0.5f), alone) << ranks;
  }
}

TEST(GradientNorm, IsTheNorm) {
  const UnitPlan units = plain_units({1700, 3, 900});
  double sum = 0;
  for (std::size_t u = 0; u < units.units.size(); ++u)
    for (std::int64_t i = 0; i < units.units[u].elements; ++i) sum += std::pow(double{gradient_at(u, i)}, 2);
  const Outcome outcome = measured(3, 12, 0.5f);
  EXPECT_NEAR(outcome.norm, std::sqrt(sum), 1e-5 * std::sqrt(sum));
  EXPECT_FLOAT_EQ(outcome.factor, 0.5f / (outcome.norm + 1e-6f));
}

}  // namespace
}  // namespace zeepo
