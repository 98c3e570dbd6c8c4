#include "zeepo/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/typed_values.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::int64_t kWidths[] = {1, 2, 15, 16, 17, 64, 100, 4096, 9001};

struct ExactRow {
  std::vector<double> softmax;
  double log_sum;
};
ExactRow exact_row(const TypedValues& x, std::int64_t row, std::int64_t n) {
  double max = x[row * n], sum = 0;
  for (std::int64_t j = 0; j < n; ++j) max = std::max(max, x[row * n + j]);
  for (std::int64_t j = 0; j < n; ++j) sum += std::exp(x[row * n + j] - max);
  ExactRow result{{}, max + std::log(sum)};
  for (std::int64_t j = 0; j < n; ++j) result.softmax.push_back(std::exp(x[row * n + j] - max) / sum);
  return result;
}

double tolerance(DType dtype, double value) { return (1.01 * rounding_of(dtype) + 2e-6) * std::abs(value) + 6e-8; }

TEST(Softmax, MatchesDoublesInPlaceToo) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t n : kWidths) {
      const auto x = TypedValues::random(dtype, {3, n}, 1, 4);
      TypedValues y(dtype, {3, n}), in_place = x;
      softmax(stream, x.view(), y.view());
      softmax(stream, in_place.view(), in_place.view());
      EXPECT_EQ(y.bytes(), in_place.bytes());
      for (std::int64_t i = 0; i < 3; ++i) {
        const ExactRow row = exact_row(x, i, n);
        for (std::int64_t j = 0; j < n; ++j) {
          const double expected = row.softmax[static_cast<std::size_t>(j)];
          ASSERT_NEAR(y[i * n + j], expected, tolerance(dtype, expected))
              << name_of(dtype) << " n " << n << " at " << j;
        }
      }
    }
  }
}

TEST(Softmax, LeavesOutMinusInfinityAndKeepsNan) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t n : {5, 40, 9001}) {
    TypedValues x(DType::f32, {1, n}), y(DType::f32, {1, n});
    for (std::int64_t j = 0; j + 2 < n; ++j) x.set(j, -kInfinity);
    softmax(stream, x.view(), y.view());
    EXPECT_EQ(y[0], 0);
    EXPECT_FLOAT_EQ(static_cast<float>(y[n - 1]), 0.5f);
    x.set(n / 2, std::numeric_limits<float>::quiet_NaN());
    softmax(stream, x.view(), y.view());
    EXPECT_TRUE(std::isnan(y[n - 1]));
  }
}

TEST(Softmax, BackwardMatchesTheFormula) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t n : kWidths) {
      const auto y = TypedValues::random(dtype, {3, n}, 2), dy = TypedValues::random(dtype, {3, n}, 3);
      TypedValues dx(dtype, {3, n});
      softmax_backward(stream, y.view(), dy.view(), dx.view());
      for (std::int64_t i = 0; i < 3; ++i) {
        double sum = 0, magnitude = 0;
        for (std::int64_t j = i * n; j < (i + 1) * n; ++j) {
          sum += y[j] * dy[j];
          magnitude += std::abs(y[j] * dy[j]);
        }
        for (std::int64_t j = i * n; j < (i + 1) * n; ++j) {
          const double expected = y[j] * (dy[j] - sum);
          const double limit = tolerance(dtype, expected) + 1e-6 * magnitude * std::abs(y[j]);
          ASSERT_NEAR(dx[j], expected, limit) << name_of(dtype) << " n " << n;
        }
      }
    }
  }
}

struct CrossEntropy {
  std::vector<float> losses;
  TypedValues dlogits;
};
CrossEntropy run_cross_entropy(int threads, const TypedValues& logits, const std::vector<std::int32_t>& targets,
                               float grad_scale) {
  ThreadPool pool(threads);
  CpuStream stream(pool);
  CrossEntropy result{std::vector<float>(targets.size()), logits};
  const auto rows = static_cast<std::int64_t>(targets.size());
  cross_entropy(stream, result.dlogits.view(), {targets.data(), DType::i32, {rows}},
                {result.losses.data(), DType::f32, {rows}}, result.dlogits.view(), grad_scale);
  return result;
}

TEST(CrossEntropy, MatchesDoublesForAnyThreadCount) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t n : {2, 17, 1000, 50257}) {
      const auto logits = TypedValues::random(dtype, {5, n}, 4, 5);
      const std::vector<std::int32_t> targets{0, static_cast<std::int32_t>(n - 1), -1, 1,
                                              static_cast<std::int32_t>(n / 2)};
      const CrossEntropy got = run_cross_entropy(1, logits, targets, 0.25f);
      for (const int threads : {2, 3}) {
        const CrossEntropy again = run_cross_entropy(threads, logits, targets, 0.25f);
        EXPECT_EQ(again.losses, got.losses);
        EXPECT_EQ(again.dlogits.bytes(), got.dlogits.bytes());
      }
      for (std::int64_t i = 0; i < 5; ++i) {
        const ExactRow row = exact_row(logits, i, n);
        const std::int32_t target = targets[static_cast<std::size_t>(i)];
        const double loss = target < 0 ? 0 : row.log_sum - logits[i * n + target];
        EXPECT_NEAR(got.losses[static_cast<std::size_t>(i)], loss, 2e-6 * (1 + std::abs(loss)));
        for (std::int64_t j = 0; j < n; ++j) {
          const double expected = target < 0 ? 0 : 0.25 * (row.softmax[static_cast<std::size_t>(j)] - (j == target));
          ASSERT_NEAR(got.dlogits[i * n + j], expected, tolerance(dtype, expected)) << name_of(dtype) << " row " << i;
        }
      }
    }
  }
}

TEST(CrossEntropy, NeedsNoGradientAndShowsNan) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  TypedValues logits(DType::f32, {1, 20});
  const std::int32_t target = 3, outside = 20;
  float loss = 0;
  const ConstView targets{&target, DType::i32, {1}};
  cross_entropy(stream, logits.view(), targets, {&loss, DType::f32, {1}}, {}, 1);
  EXPECT_NEAR(loss, std::log(20.0), 1e-6);
  logits.set(19, std::numeric_limits<float>::quiet_NaN());
  cross_entropy(stream, logits.view(), targets, {&loss, DType::f32, {1}}, {}, 1);
  EXPECT_TRUE(std::isnan(loss));
  const ConstView wrong{&outside, DType::i32, {1}};
  EXPECT_THROW(cross_entropy(stream, logits.view(), wrong, {&loss, DType::f32, {1}}, {}, 1), Error);
}

TEST(Sum, AddsInDoublePrecision) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const std::vector<float> x{1e8f, 1, 1, -1e8f};
  float total = 5;
  const ConstView view{x.data(), DType::f32, {4}};
  sum(stream, view, 0.5f, {&total, DType::f32, {1}}, true);
  EXPECT_EQ(total, 6);
  sum(stream, view, 0.5f, {&total, DType::f32, {1}}, false);
  EXPECT_EQ(total, 1);
}

}  // namespace
}  // namespace zeepo
