#include "zeepo/ops/linear.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"

namespace zeepo {
namespace {

TEST(Linear, GradientsOfEveryLayoutAgreeWithDifferences) {
  TestDevice device;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const Shape weight = layout == WeightLayout::out_in ? Shape{5, 7} : Shape{7, 5};
    const auto x = random_input("x", {2, 3, 7}, 1), w = random_input("weight", weight, 2),
               b = random_input("bias", {5}, 3);
    expect_gradients({x, w, b}, [&](auto in) { return linear(in[0], in[1], in[2], layout); });
    expect_gradients({x, w}, [&](auto in) { return linear(in[0], in[1], {}, layout); });
  }
}

TEST(Linear, GradientsAddUpWhenOneWeightIsUsedTwice) {
  TestDevice device;
  expect_gradients({random_input("x", {3, 4}, 1), random_input("weight", {4, 4}, 2, 0.5f)},
                   [](auto in) { return linear(linear(in[0], in[1]), in[1]); });
}

TEST(Linear, OnlyWhatIsWantedGetsAGradient) {
  TestDevice device;
  const Tensor x = random_tensor({3, 7}, 1);  // data
  expect_gradients({random_input("weight", {5, 7}, 2)}, [&](auto in) { return linear(x, in[0]); });
  const Tensor weight = random_tensor({5, 7}, 2);
  expect_gradients({random_input("x", {3, 7}, 1)}, [&](auto in) { return linear(in[0], weight); });
}

TEST(Linear, ErrorsNameTheShapes) {
  TestDevice device;
  const Tensor x({2, 3}), weight({5, 4}), bias(Shape{6});
  EXPECT_TRUE(names(error_text([&] { linear(x, weight); }), "linear", "(2, 3)", "(5, 4)"));
  EXPECT_TRUE(names(error_text([&] { linear(Tensor({2, 4}), weight, bias); }), "linear", "(6)", "(5, 4)"));
}

}  // namespace
}  // namespace zeepo
