#include "zeepo/kernels/softmax.h"

#include <limits>

#include "tests/kernels/cuda/cuda_checks.h"

namespace zeepo {
namespace {

constexpr std::int64_t kWidths[] = {1, 10, 64, 1000, 1031, 32768};

TEST(CudaSoftmax, SoftmaxAndItsGradientAreNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const auto n : kWidths) {
      auto x = Twin::random(dtype, {5, n}, 1, 3), dy = Twin::random(dtype, {5, n}, 2);
      Twin y(dtype, {5, n}), dx(dtype, {5, n});
      on_both([&](auto& s) {
        softmax(s, x.on(s), y.on(s));
        softmax_backward(s, y.on(s), dy.on(s), dx.on(s));
      });
      y.expect_near(5e-6, 0, "softmax " + name_of_case(dtype, n));
      // y itself may be a rounding off, and dy − sum may cancel
      dx.expect_near(dtype == DType::f32 ? 5e-6 : 2 * rounding_of(dtype), 1e-2 + 1.0 / static_cast<double>(n),
                     "softmax_backward " + name_of_case(dtype, n));
    }
}

TEST(CudaSoftmax, CrossEntropyIsNearTheCpusAlsoInPlace) {
  for (const DType dtype : kFloatTypes)
    for (const auto n : kWidths) {
      constexpr std::int64_t kRows = 7;
      auto logits = Twin::random(dtype, {kRows, n}, 1, 3);
      std::vector<std::int32_t> ids;
      for (std::int64_t i = 0; i < kRows; ++i) ids.push_back(i == 3 ? -1 : static_cast<std::int32_t>((i * 7919) % n));
      auto targets = Twin::integers(ids, {kRows});
      Twin alone(DType::f32, {kRows}), losses(DType::f32, {kRows}), dlogits(dtype, {kRows, n});
      on_both([&](auto& s) {
        cross_entropy(s, logits.on(s), targets.on(s), alone.on(s), {}, 1);
        cross_entropy(s, logits.on(s), targets.on(s), losses.on(s), dlogits.on(s), 0.25f);
        cross_entropy(s, logits.on(s), targets.on(s), losses.on(s), logits.on(s), 0.25f);
      });
      const auto what = name_of_case(dtype, n);
      alone.expect_near(2e-6, 1, "loss " + what);
      losses.expect_near(2e-6, 1, "loss " + what);
      dlogits.expect_near(5e-6, 0.1, "dlogits " + what);
      EXPECT_TRUE(logits.back().bytes() == dlogits.back().bytes()) << "in place " << what;
    }
}

TEST(CudaSoftmax, InfiniteAndNaNLogitsShow) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float odd : {-inf, std::nanf("")}) {
    auto values = TypedValues::random(DType::f32, {2, 100}, 1);
    values.set(17, odd);
    Twin x(values);
    Twin y(DType::f32, {2, 100});
    on_both([&](auto& s) { softmax(s, x.on(s), y.on(s)); });
    y.expect_near(5e-6, 0, "softmax with an odd element");
  }
}

TEST(CudaSoftmax, ATargetPastTheRowMakesItsLossNaN) {
  auto logits = Twin::random(DType::bf16, {2, 10}, 1);
  auto targets = Twin::integers({10, 3}, {2});
  Twin losses(DType::f32, {2});
  cross_entropy(gpu(), logits.on(gpu()), targets.on(gpu()), losses.on(gpu()), {}, 1);
  EXPECT_TRUE(std::isnan(losses.back()[0]));
  EXPECT_FALSE(std::isnan(losses.back()[1]));
}

TEST(CudaSoftmax, SumIsThatOfTheCpu) {
  for (const std::int64_t n : {1, 5, 1024, 8193, 100000}) {
    auto x = Twin::random(DType::f32, {n}, 1);
    Twin total(DType::f32, {1});
    on_both([&](auto& s) {
      sum(s, x.on(s), 0.5f, total.on(s), false);
      sum(s, x.on(s), 0.25f, total.on(s), true);
    });
    total.expect_near(1.2e-7, 0, "sum " + name_of_case(DType::f32, n));
  }
}

}  // namespace
}  // namespace zeepo
