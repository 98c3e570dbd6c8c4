// The rules of CONTRACT, in doubles, against what steps the weights.
#include "zeepo/optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/test_device.h"

namespace zeepo {
namespace {

constexpr std::int64_t kCount = 37;

struct Reference {
  std::vector<double> weights, first, second;

  void step(const OptimizerOptions& o, const std::vector<float>& grads, std::int64_t t, double lr) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      double& p = weights[i];
      double g = grads[i];
      if (o.type == OptimizerType::adamw)
        p -= lr * o.weight_decay * p;
      else
        g += o.weight_decay * p;
      if (o.type == OptimizerType::sgd) {
        first[i] = t == 1 || o.momentum == 0 ? g : o.momentum * first[i] + g;
        p -= lr * first[i];
        continue;
      }
      first[i] = o.beta1 * first[i] + (1 - o.beta1) * g;
      second[i] = o.beta2 * second[i] + (1 - o.beta2) * g * g;
      const double m = first[i] / (1 - std::pow(o.beta1, t)), v = second[i] / (1 - std::pow(o.beta2, t));
      p -= lr * m / (std::sqrt(v) + o.eps);
    }
  }
};

// 20 steps towards the minimum of Σ (w − target)² / 2, each with the gradient at the fp32 weights.
void expect_agreement(const OptimizerOptions& options) {
  TestDevice device;
  const auto start = random_floats(kCount, 1), target = random_floats(kCount, 2);
  const Tensor weights = Tensor::from<float>(start, {kCount});
  const Tensor control = Tensor::from<float>(std::vector<float>{0, 1, 0}, {3});
  std::vector<Tensor> states;
  std::vector<Moment> views;
  for (int i = 0; i < state_count(options); ++i) {
    states.push_back(Tensor::from<float>(std::vector<float>(kCount), {kCount}));
    views.push_back(states.back().view());
  }
  Reference reference{{start.begin(), start.end()}, std::vector<double>(kCount), std::vector<double>(kCount)};
  for (std::int64_t t = 1; t <= 20; ++t) {
    auto grads = weights.to_floats();
    for (std::size_t i = 0; i < grads.size(); ++i) grads[i] -= target[i];
    const Tensor grad = Tensor::from<float>(grads, {kCount});
    step(Device::current().compute, options, {{weights.view(), View{}}, grad.view(), views, options.weight_decay},
         control.view(), t, 0.05);
    reference.step(options, grads, t, 0.05);
    const auto values = weights.to_floats();
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], reference.weights[i], 2e-6 * (1 + std::abs(reference.weights[i]))) << "step " << t;
  }
  double distance_before = 0, distance_after = 0;
  const auto end = weights.to_floats();
  for (std::size_t i = 0; i < end.size(); ++i) {
    distance_before += std::abs(start[i] - target[i]);
    distance_after += std::abs(end[i] - target[i]);
  }
  EXPECT_LT(distance_after, distance_before);
}

TEST(Optimizer, AdamWAgreesWithItsFormula) { expect_agreement({}); }
TEST(Optimizer, AdamAgreesWithItsFormula) { expect_agreement({.type = OptimizerType::adam}); }
TEST(Optimizer, SgdAgreesWithItsFormula) { expect_agreement({.type = OptimizerType::sgd, .weight_decay = 0.01f}); }
TEST(Optimizer, SgdWithoutMomentumAgreesWithItsFormula) {
  expect_agreement({.type = OptimizerType::sgd, .momentum = 0, .weight_decay = 0});
}

TEST(Optimizer, KeepsOnlyTheStatesItsRuleNeeds) {
  EXPECT_EQ(state_count({}), 2);
  EXPECT_EQ(state_count({.type = OptimizerType::adam}), 2);
  EXPECT_EQ(state_count({.type = OptimizerType::sgd}), 1);
  EXPECT_EQ(state_count({.type = OptimizerType::sgd, .momentum = 0}), 0);
}

TEST(Optimizer, ThePartsDecayStandsInForTheOptions) {
  TestDevice device;
  const auto one = [](float value) { return Tensor::from<float>(std::vector<float>{value}, {1}); };
  const Tensor weights = one(2), grad = one(0), first = one(0), second = one(0);
  const Tensor control = Tensor::from<float>(std::vector<float>{0, 1, 0}, {3});
  const std::vector<Moment> moments{first.view(), second.view()};
  step(Device::current().compute, {}, {{weights.view(), View{}}, grad.view(), moments, 0}, control.view(), 1, 0.5);
  EXPECT_EQ(weights.item(), 2);
  step(Device::current().compute, {}, {{weights.view(), View{}}, grad.view(), moments, 0.5f}, control.view(), 2, 0.5);
  EXPECT_EQ(weights.item(), 1.5f);
}

}  // namespace
}  // namespace zeepo
