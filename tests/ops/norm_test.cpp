#include "zeepo/ops/norm.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"

namespace zeepo {
namespace {

Input weight(std::int64_t n) { return random_input("weight", {n}, 7, 0.3f, 1); }
Input bias(std::int64_t n) { return random_input("bias", {n}, 8, 0.3f); }

TEST(Norm, GradientsAgreeWithDifferences) {
  TestDevice device;
  const auto x = random_input("x", {2, 3, 7}, 1);
  expect_gradients({x, weight(7), bias(7)}, [](auto in) { return layer_norm(in[0], in[1], in[2], 1e-5f); });
  expect_gradients({x, weight(7)}, [](auto in) { return rms_norm(in[0], in[1], 1e-5f); });
}

TEST(Norm, AddNormGradientsAgreeWhenBothOutputsAreUsed) {
  TestDevice device;
  const auto x = random_input("x", {5, 9}, 1), delta = random_input("delta", {5, 9}, 2);
  expect_gradients({x, delta, weight(9), bias(9)}, [](auto in) {
    const auto [sum, normalised] = add_layer_norm(in[0], in[1], in[2], in[3], 1e-5f);
    return add(sum, gelu(normalised));
  });
  expect_gradients({x, delta, weight(9)}, [](auto in) {
    const auto [sum, normalised] = add_rms_norm(in[0], in[1], in[2], 1e-5f);
    return add(gelu(sum), normalised);
  });
}

TEST(Norm, AddNormGradientsAgreeWhenOneOutputIsUsed) {
  TestDevice device;
  const auto x = random_input("x", {3, 5}, 1), delta = random_input("delta", {3, 5}, 2);
  expect_gradients({x, delta, weight(5)}, [](auto in) { return add_rms_norm(in[0], in[1], in[2], 1e-5f).normalised; });
  const Tensor ones = Tensor::from<float>(std::vector<float>(5, 1), {5});
  expect_gradients({x, delta}, [&](auto in) { return add_rms_norm(in[0], in[1], ones, 1e-5f).sum; });
}

TEST(Norm, AResidualThatIsUsedTwiceKeepsBothGradients) {
  TestDevice device;
  expect_gradients({random_input("x", {3, 5}, 1), weight(5)},
                   [](auto in) { return add(in[0], rms_norm(in[0], in[1], 1e-5f)); });
  // delta is x itself: one value, two contributions.
  expect_gradients({random_input("x", {3, 5}, 1), weight(5), bias(5)}, [](auto in) {
    const auto [sum, normalised] = add_layer_norm(in[0], in[0], in[1], in[2], 1e-5f);
    return add(sum, normalised);
  });
}

TEST(Norm, ErrorsNameTheShapes) {
  TestDevice device;
  const Tensor x({2, 3}), wrong(Shape{4}), right(Shape{3});
  EXPECT_TRUE(names(error_text([&] { rms_norm(x, wrong, 1e-5f); }), "norm", "(2, 3)", "(4)"));
  EXPECT_TRUE(names(error_text([&] { add_rms_norm(x, Tensor({3, 2}), right, 1e-5f); }), "norm", "(2, 3)", "(3, 2)"));
}

}  // namespace
}  // namespace zeepo
