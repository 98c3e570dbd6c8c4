// Ops of one element at a time, softmax, and the two that only hand gradients on.
#include <algorithm>
#include <cmath>

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/autograd/random_state.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"
#include "zeepo/ops/dropout.h"
#include "zeepo/ops/reshape.h"
#include "zeepo/ops/softmax.h"

namespace zeepo {
namespace {

TEST(Activation, GradientsAgreeWithDifferences) {
  TestDevice device;
  for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf, Activation::silu})
    expect_gradients({random_input("x", {3, 7}, 1, 2)}, [&](auto in) { return activate(in[0], activation); });
  auto x = random_input("x", {3, 7}, 2);
  for (float& value : x.values) value += value < 0 ? -0.1f : 0.1f;  // away from the kink
  expect_gradients({x}, [](auto in) { return relu(in[0]); });
}

TEST(Activation, FormsOfGeluDiffer) {
  TestDevice device;
  const Tensor x = Tensor::from<float>(std::vector<float>{1.5f}, {1});
  const double exact = 0.5 * 1.5 * (1 + std::erf(1.5 / std::sqrt(2.0)));
  EXPECT_NEAR(activate(x, Activation::gelu_erf).item(), exact, 1e-6);
  EXPECT_NEAR(gelu(x).item(), 0.5 * 1.5 * (1 + std::tanh(std::sqrt(2 / M_PI) * (1.5 + 0.044715 * 1.5 * 1.5 * 1.5))),
              1e-6);
  EXPECT_GT(std::abs(gelu(x).item() - exact), 1e-5);
}

TEST(Swiglu, GradientsAgreeWithDifferences) {
  TestDevice device;
  expect_gradients({random_input("x", {3, 10}, 1, 2)}, [](auto in) { return swiglu(in[0]); });
  EXPECT_TRUE(names(error_text([] { swiglu(Tensor({2, 5})); }), "swiglu", "(2, 5)", "even"));
}

TEST(Softmax, GradientsAgreeWithDifferences) {
  TestDevice device;
  expect_gradients({random_input("x", {2, 3, 7}, 1)}, [](auto in) { return softmax(in[0]); });
}

TEST(Add, GradientsAgreeWithDifferences) {
  TestDevice device;
  expect_gradients({random_input("a", {2, 5}, 1), random_input("b", {2, 5}, 2)},
                   [](auto in) { return add(gelu(in[0]), in[1]); });
  expect_gradients({random_input("a", {2, 5}, 1)}, [](auto in) { return add(in[0], in[0]); });
  EXPECT_TRUE(names(error_text([] { add(Tensor({2, 5}), Tensor({5, 2})); }), "add", "(2, 5)", "(5, 2)"));
}

TEST(Reshape, GradientsAgreeWithDifferences) {
  TestDevice device;
  expect_gradients({random_input("x", {2, 6}, 1)}, [](auto in) { return softmax(reshape(in[0], {3, 4})); });
  EXPECT_TRUE(names(error_text([] { reshape(Tensor({2, 5}), {3, 3}); }), "(2, 5)", "(3, 3)"));
}

TEST(Dropout, GradientsAgreeUnderAFixedState) {
  TestDevice device;
  expect_gradients({random_input("x", {5, 7}, 1)}, [](auto in) {
    RandomState::current() = {.key = {3}, .next = 0, .training = true};
    Tensor y = dropout(gelu(dropout(in[0], 0.3f)), 0.5f);
    RandomState::current() = {};
    return y;
  });
}

TEST(Dropout, KeepsTheShareAndTheMeanAndDrawsAnewEachTime) {
  TestDevice device;
  const std::int64_t n = 20000;
  const Tensor x = Tensor::from<float>(std::vector<float>(static_cast<std::size_t>(n), 1), {n});
  RandomState::current() = {.key = {3}, .next = 0, .training = true};
  const auto first = dropout(x, 0.25f).to_floats(), second = dropout(x, 0.25f).to_floats();
  RandomState::current() = {};
  const auto zeros = std::count(first.begin(), first.end(), 0.0f);
  EXPECT_NEAR(static_cast<double>(zeros) / static_cast<double>(n), 0.25, 0.01);
  for (const float value : first) EXPECT_TRUE(value == 0 || std::abs(value - 1 / 0.75f) < 1e-6);
  EXPECT_NE(first, second);
  EXPECT_EQ(dropout(x, 0.25f).to_floats(), x.to_floats());  // not in training
  EXPECT_TRUE(names(error_text([&] { dropout(x, 1); }), "dropout", "p = 1"));
}

}  // namespace
}  // namespace zeepo
