// Gradients of any function of tensors against central differences.
//
// The function's output is weighed into one number, Σ cᵢ·yᵢ with fixed cᵢ (1 where it is a loss of one element). Each
// element of each input is moved by ±h and ±2h; the five-point formula keeps the truncation below fp32's rounding.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/support/test_device.h"
#include "zeepo/autograd/tape.h"

namespace zeepo {

struct Input {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

inline Input random_input(std::string name, Shape shape, std::uint64_t seed, float deviation = 1, float mean = 0) {
  Input input{std::move(name), shape, random_floats(shape.elements(), seed, deviation)};
  for (float& value : input.values) value += mean;
  return input;
}

using TensorFunction = std::function<Tensor(std::span<const Tensor>)>;

// Keeps the gradients of leaves, as an engine does.
class LeafStore final : public Leaf::Store {
 public:
  Gradient::Target gradient_of(const Leaf& leaf) override {
    if (const auto found = gradients_.find(&leaf); found != gradients_.end()) return {found->second, Write::add};
    return {gradients_[&leaf] = Tensor(leaf.shape(), leaf.dtype()), Write::overwrite};
  }
  bool has(const Leaf& leaf) const { return gradients_.contains(&leaf); }
  std::vector<float> of(const Leaf& leaf) const { return gradients_.at(&leaf).to_floats(); }

 private:
  std::map<const Leaf*, Tensor> gradients_;
};

// A parameter by itself.
inline std::shared_ptr<Leaf> make_leaf(const Tensor& value, LeafStore& store) {
  auto leaf = std::make_shared<Leaf>(value.shape(), value.dtype());
  leaf->set_current(value);
  leaf->set_store(&store);
  return leaf;
}

inline Tensor as_tensor(const std::shared_ptr<Leaf>& leaf) {
  Tensor value = leaf->current();
  value.set_gradient(leaf);
  return value;
}

struct GradientCheck {
  double step = 1e-2;
  double tolerance = 5e-4;  // of 1 + |gradient|
};

namespace gradient_check {

inline std::vector<float> output_weights(const Tensor& y) {
  if (y.elements() == 1) return {1.0f};
  return random_floats(y.elements(), 4711);
}

inline double value_of(const std::vector<Input>& inputs, const TensorFunction& f) {
  std::vector<Tensor> tensors;
  for (const auto& input : inputs) tensors.push_back(Tensor::from<float>(input.values, input.shape));
  const Tensor y = f(tensors);
  const auto values = y.to_floats(), weights = output_weights(y);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += static_cast<double>(values[i]) * weights[i];
  return sum;
}

// With inputs as values computed before, or as parameters whose gradients go to a store.
enum class As { values, parameters };

inline std::vector<std::vector<float>> tape_gradients(const std::vector<Input>& inputs, const TensorFunction& f,
                                                      As as) {
  LeafStore store;
  std::vector<std::shared_ptr<Leaf>> leaves;
  std::vector<Tensor> tensors;
  for (const auto& input : inputs) {
    Tensor x = Tensor::from<float>(input.values, input.shape);
    if (as == As::parameters) {
      leaves.push_back(make_leaf(x, store));
      x = as_tensor(leaves.back());
    } else {
      x.set_gradient(std::make_shared<Gradient>(input.shape, DType::f32));
    }
    tensors.push_back(x);
  }
  Tape tape;
  Tensor y;
  {
    const TapeScope scope(&tape);
    y = f(tensors);
  }
  tape.backward(y, Tensor::from<float>(output_weights(y), y.shape()));
  std::vector<std::vector<float>> gradients;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (as == As::parameters) {
      EXPECT_TRUE(store.has(*leaves[i])) << inputs[i].name << " got no gradient";
      gradients.push_back(store.has(*leaves[i]) ? store.of(*leaves[i]) : std::vector<float>(inputs[i].values.size()));
    } else {
      const auto& gradient = *tensors[i].gradient();
      EXPECT_TRUE(gradient.written()) << inputs[i].name << " got no gradient";
      gradients.push_back(gradient.written() ? gradient.value().to_floats()
                                             : std::vector<float>(inputs[i].values.size()));
    }
  }
  return gradients;
}

}  // namespace gradient_check

inline void expect_gradients(std::vector<Input> inputs, const TensorFunction& f, const GradientCheck& check = {}) {
  using namespace gradient_check;
  const auto as_values = tape_gradients(inputs, f, As::values);
  const auto as_parameters = tape_gradients(inputs, f, As::parameters);
  for (std::size_t k = 0; k < inputs.size(); ++k)
    for (std::size_t i = 0; i < inputs[k].values.size(); ++i) {
      float& x = inputs[k].values[i];
      const float there = x;
      const auto at = [&](double offset) {
        x = static_cast<float>(there + offset);
        const double moved = static_cast<double>(x) - there;
        const double value = value_of(inputs, f);
        x = there;
        return std::pair(value, moved);
      };
      const double h = check.step;
      const auto [up, up_by] = at(h);
      const auto [down, down_by] = at(-h);
      const auto [up2, up2_by] = at(2 * h);
      const auto [down2, down2_by] = at(-2 * h);
      const double near = (up - down) / (up_by - down_by), far = (up2 - down2) / (up2_by - down2_by);
      const double expected = (4 * near - far) / 3;
      const double allowed = check.tolerance * (1 + std::abs(expected));
      ASSERT_NEAR(as_values[k][i], expected, allowed) << inputs[k].name << "[" << i << "] as a value";
      ASSERT_NEAR(as_parameters[k][i], expected, allowed) << inputs[k].name << "[" << i << "] as a parameter";
    }
}

}  // namespace zeepo
