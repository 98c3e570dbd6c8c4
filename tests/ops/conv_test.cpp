#include "zeepo/ops/conv.h"

#include <algorithm>
#include <numeric>

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"

namespace zeepo {
namespace {

TEST(Conv2d, GradientsAgreeForStridesAndPaddings) {
  TestDevice device;
  const auto x = random_input("x", {2, 3, 5, 6}, 1), weight = random_input("weight", {4, 3, 3, 2}, 2, 0.5f),
             bias = random_input("bias", {4}, 3);
  for (const ConvOptions options : {ConvOptions{1, 0}, ConvOptions{2, 0}, ConvOptions{1, 2}, ConvOptions{3, 1}}) {
    expect_gradients({x, weight, bias}, [&](auto in) { return conv2d(in[0], in[1], in[2], options); });
  }
  expect_gradients({x, weight}, [](auto in) { return conv2d(in[0], in[1]); });
}

TEST(Conv2d, AnImageOfDataGetsNoGradient) {
  TestDevice device;
  const Tensor x = random_tensor({2, 1, 4, 4}, 1);
  expect_gradients({random_input("weight", {2, 1, 3, 3}, 2), random_input("bias", {2}, 3)},
                   [&](auto in) { return conv2d(x, in[0], in[1], {.padding = 1}); });
}

TEST(MaxPool2d, GradientsAgreeAndTheRestIsDropped) {
  TestDevice device;
  Input x{"x", {2, 2, 5, 7}, std::vector<float>(140)};
  std::iota(x.values.begin(), x.values.end(), 0.0f);  // all apart by more than the step
  std::ranges::sort(x.values, {}, [](float v) { return static_cast<int>(v) * 37 % 140; });
  expect_gradients({x}, [](auto in) { return max_pool2d(in[0], 2); }, {.tolerance = 2e-3});
  EXPECT_EQ(max_pool2d(Tensor::from<float>(x.values, x.shape), 2).shape(), (Shape{2, 2, 2, 3}));
}

TEST(Conv2d, ErrorsNameTheShapes) {
  TestDevice device;
  EXPECT_TRUE(names(error_text([] {
                      conv2d(Tensor({1, 2, 5, 5}), Tensor({4, 3, 3, 3}));
                    }),
                    "conv2d", "(1, 2, 5, 5)", "(4, 3, 3, 3)"));
  EXPECT_TRUE(names(error_text([] { conv2d(Tensor({1, 2, 2, 2}), Tensor({4, 2, 3, 3})); }), "conv2d", "padding 0"));
  EXPECT_TRUE(names(error_text([] { max_pool2d(Tensor({1, 2, 5, 1}), 2); }), "max_pool2d", "(1, 2, 5, 1)", "2 x 2"));
}

}  // namespace
}  // namespace zeepo
