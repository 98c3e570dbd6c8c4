#include <limits>

#include "tests/kernels/kernel_checks.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

constexpr Activation kActivations[] = {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::silu};
constexpr double kPi = 3.14159265358979323846;

double value(Activation activation, double x) {
  switch (activation) {
    case Activation::gelu_tanh: return x / (1 + std::exp(-2 * std::sqrt(2 / kPi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf: return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::relu: return x > 0 ? x : 0;
    case Activation::silu: return x / (1 + std::exp(-x));
  }
  return 0;
}
double slope(Activation activation, double x) {
  if (activation == Activation::relu) return x > 0 ? 1 : 0;
  const double h = 1e-5;
  return (value(activation, x + h) - value(activation, x - h)) / (2 * h);
}

// Values from all magnitudes, and the tails.
TypedValues arguments(DType dtype, std::int64_t n) {
  TypedValues x(dtype, {n});
  for (std::int64_t i = 0; i < n; ++i) {
    const auto size = std::exp2(12 * uniform({1}, static_cast<std::uint64_t>(i)) - 8);
    x.set(i, (i % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(size));
  }
  return x;
}

// In the tails the result is an exponential, whose argument has been rounded: an error relative to that argument's
// size.
double tail_slack(double x) { return 1e-6 + 1.2e-7 * (x < 0 ? x * x * (1 + 0.2 * std::abs(x)) : 0); }

TEST(Activate, MatchesDoubles) {
  Threads threads(2);
  for (const Activation activation : kActivations)
    for (const DType dtype : kFloatTypes)
      for (const std::int64_t n : {1, 15, 16, 17, 1000, 70001}) {
        const auto x = arguments(dtype, n);
        TypedValues y(dtype, {n});
        activate(threads.stream, activation, x.view(), y.view());
        for (std::int64_t i = 0; i < n; ++i) {
          const double exact = value(activation, x[i]);
          const double error = allowed_error(dtype, exact, tail_slack(x[i])) + 1e-33;
          ASSERT_NEAR(y[i], exact, error) << static_cast<int>(activation) << name_of(dtype) << " " << x[i];
        }
        auto in_place = x;
        activate(threads.stream, activation, in_place.view(), in_place.view());
        EXPECT_TRUE(in_place.bytes() == y.bytes());
      }
}

TEST(Activate, GradientMatchesFiniteDifferences) {
  Threads threads(2);
  for (const Activation activation : kActivations)
    for (const DType dtype : kFloatTypes)
      for (const std::int64_t n : {1, 17, 5000}) {
        const auto x = arguments(dtype, n), dy = TypedValues::random(dtype, {n}, 2);
        TypedValues dx(dtype, {n});
        activate_backward(threads.stream, activation, x.view(), dy.view(), dx.view());
        for (std::int64_t i = 0; i < n; ++i) {
          const double exact = dy[i] * slope(activation, x[i]);
          ASSERT_NEAR(dx[i], exact, allowed_error(dtype, exact, 2e-6) + 1e-6 * std::abs(dy[i]))
              << static_cast<int>(activation) << name_of(dtype) << " " << x[i];
        }
      }
}

TEST(Activate, KeepsNanAndSurvivesLargeArguments) {
  Threads threads(1);
  constexpr float kLargest = std::numeric_limits<float>::max();
  TypedValues x(DType::f32, {4}), y(DType::f32, {4}), dx(DType::f32, {4}), ones(DType::f32, {4});
  fill(threads.stream, ones.view(), 1);
  x.set(0, std::numeric_limits<float>::quiet_NaN());
  x.set(1, 1000);
  x.set(2, -1000);
  x.set(3, kLargest);
  for (const Activation activation : kActivations) {
    activate(threads.stream, activation, x.view(), y.view());
    EXPECT_TRUE(std::isnan(y[0])) << static_cast<int>(activation);
    EXPECT_EQ(y[1], 1000) << static_cast<int>(activation);
    EXPECT_NEAR(y[2], 0, 1e-30) << static_cast<int>(activation);
    EXPECT_EQ(y[3], double{kLargest}) << static_cast<int>(activation);
    activate_backward(threads.stream, activation, x.view(), ones.view(), dx.view());
    EXPECT_EQ(dx[1], 1) << static_cast<int>(activation);
    EXPECT_NEAR(dx[2], 0, 1e-30) << static_cast<int>(activation);
  }
}

TEST(Swiglu, MatchesDoublesAndFiniteDifferences) {
  Threads threads(2);
  const auto swish = [](double g, double u) { return value(Activation::silu, g) * u; };
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t n : {1, 5, 16, 100, 1537}) {
      constexpr std::int64_t kRows = 33;
      const auto x = TypedValues::random(dtype, {3, 11, 2 * n}, 3, 2), dy = TypedValues::random(dtype, {3, 11, n}, 4);
      TypedValues y(dtype, {3, 11, n}), dx(dtype, {3, 11, 2 * n});
      swiglu(threads.stream, x.view(), y.view());
      swiglu_backward(threads.stream, x.view(), dy.view(), dx.view());
      for (std::int64_t row = 0; row < kRows; ++row)
        for (std::int64_t j = 0; j < n; ++j) {
          const double g = x[row * 2 * n + j], u = x[row * 2 * n + n + j], d = dy[row * n + j];
          ASSERT_NEAR(y[row * n + j], swish(g, u), allowed_error(dtype, swish(g, u), 1e-6));
          const double dg = d * u * slope(Activation::silu, g), du = d * value(Activation::silu, g);
          ASSERT_NEAR(dx[row * 2 * n + j], dg, allowed_error(dtype, dg, 1e-6) + 1e-6 * std::abs(d * u));
          ASSERT_NEAR(dx[row * 2 * n + n + j], du, allowed_error(dtype, du, 1e-6));
        }
      auto in_place = x;
      swiglu_backward(threads.stream, in_place.view(), dy.view(), in_place.view());
      EXPECT_TRUE(in_place.bytes() == dx.bytes());
    }
}

TEST(Activate, SameBitsForAnyThreadCount) {
  expect_same_bits_for_any_thread_count([](CpuStream& stream) {
    const auto x = arguments(DType::bf16, 200'002), dy = TypedValues::random(DType::bf16, {100'001}, 1);
    std::vector<TypedValues> results(3, TypedValues(DType::bf16, {200'002}));
    activate(stream, Activation::gelu_tanh, x.view(), results[0].view());
    dropout(stream, x.view(), 0.1f, {3}, results[1].view());
    const View pairs{const_cast<std::byte*>(x.bytes().data()), DType::bf16, {100'001, 2}};
    swiglu_backward(stream, pairs, {dy.bytes().data(), DType::bf16, {100'001, 1}},
                    {results[2].view().data, DType::bf16, {100'001, 2}});
    return results;
  });
}

}  // namespace
}  // namespace zeepo
