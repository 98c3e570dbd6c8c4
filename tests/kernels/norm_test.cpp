#include "zeepo/kernels/norm.h"

#include "tests/kernels/kernel_checks.h"

namespace zeepo {
namespace {

using Values = std::vector<double>;
Values doubles(const TypedValues& x) {
  Values values;
  for (std::int64_t i = 0; i < x.elements(); ++i) values.push_back(x[i]);
  return values;
}

struct Exact {
  Values y, mean, rstd;
};
// Layer norm, or RMS norm when `center` is false; bias may be empty.
Exact exact_norm(const Values& x, const Values& weight, const Values& bias, double eps, bool center) {
  const auto n = weight.size();
  Exact result{Values(x.size()), {}, {}};
  for (std::size_t row = 0; row < x.size() / n; ++row) {
    const double* in = x.data() + row * n;
    double mean = 0, squares = 0;
    for (std::size_t j = 0; j < n && center; ++j) mean += in[j] / static_cast<double>(n);
    for (std::size_t j = 0; j < n; ++j) squares += (in[j] - mean) * (in[j] - mean) / static_cast<double>(n);
    const double rstd = 1 / std::sqrt(squares + eps);
    for (std::size_t j = 0; j < n; ++j)
      result.y[row * n + j] = (in[j] - mean) * rstd * weight[j] + (bias.empty() ? 0 : bias[j]);
    result.mean.push_back(mean);
    result.rstd.push_back(rstd);
  }
  return result;
}

// The derivative of sum(dy·y) by one of the arguments, at place i.
double difference(Values& argument, std::size_t i, const std::function<Values()>& norm, const Values& dy) {
  const double h = 1e-5, at = argument[i];
  const auto loss = [&](double x) {
    argument[i] = x;
    const auto y = norm();
    double sum = 0;
    for (std::size_t k = 0; k < y.size(); ++k) sum += y[k] * dy[k];
    return sum;
  };
  const double slope = (loss(at + h) - loss(at - h)) / (2 * h);
  argument[i] = at;
  return slope;
}

constexpr float kEps = 1e-5f;

TEST(LayerNorm, MatchesDoubles) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t n : {1, 3, 16, 31, 100, 768, 1025})
      for (const bool with_bias : {true, false}) {
        constexpr std::int64_t kRows = 90;
        auto x = TypedValues::random(dtype, {9, 10, n}, 1);
        for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<float>(x[i]) + 3);
        const auto weight = TypedValues::random(dtype, {n}, 2), bias = TypedValues::random(dtype, {n}, 3);
        TypedValues y(dtype, {9, 10, n}), mean(DType::f32, {kRows}), rstd(DType::f32, {kRows});
        layer_norm(threads.stream, {.x = x.view(),
                                    .delta = {},
                                    .weight = weight.view(),
                                    .bias = with_bias ? bias.view() : ConstView{},
                                    .eps = kEps,
                                    .sum = {},
                                    .y = y.view(),
                                    .mean = mean.view(),
                                    .rstd = rstd.view()});
        const auto exact = exact_norm(doubles(x), doubles(weight), with_bias ? doubles(bias) : Values{}, kEps, true);
        for (std::int64_t i = 0; i < y.elements(); ++i) {
          const auto row = static_cast<std::size_t>(i / n);
          const double value = exact.y[static_cast<std::size_t>(i)];
          // x − mean keeps the rounding of a mean of about 3
          const double error = allowed_error(dtype, value, 2e-6) + 5e-6 * exact.rstd[row] * std::abs(weight[i % n]);
          ASSERT_NEAR(y[i], value, error) << name_of(dtype) << " n " << n;
          ASSERT_NEAR(mean[i / n], exact.mean[row], 5e-6 * 3);
          ASSERT_NEAR(rstd[i / n], exact.rstd[row], 2e-5 * exact.rstd[row]);
        }
      }
}

TEST(LayerNorm, AddsTheResidualAndNormalisesTheRoundedSum) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t n : {5, 64, 769}) {
      const Shape shape{50, n};
      const auto x = TypedValues::random(dtype, shape, 1), delta = TypedValues::random(dtype, shape, 2);
      const auto weight = TypedValues::random(dtype, {n}, 3), bias = TypedValues::random(dtype, {n}, 4);
      TypedValues sum(dtype, shape), y(dtype, shape), again(dtype, shape), expected_sum(dtype, shape);
      TypedValues mean(DType::f32, {50}), rstd(DType::f32, {50});
      LayerNormForward op{.x = x.view(),
                          .delta = delta.view(),
                          .weight = weight.view(),
                          .bias = bias.view(),
                          .eps = kEps,
                          .sum = sum.view(),
                          .y = y.view(),
                          .mean = mean.view(),
                          .rstd = rstd.view()};
      layer_norm(threads.stream, op);
      for (std::int64_t i = 0; i < x.elements(); ++i)
        expected_sum.set(i, static_cast<float>(x[i]) + static_cast<float>(delta[i]));
      EXPECT_TRUE(sum.bytes() == expected_sum.bytes());
      op.x = sum.view(), op.delta = {}, op.sum = {}, op.y = again.view();
      layer_norm(threads.stream, op);
      EXPECT_TRUE(again.bytes() == y.bytes());

      TypedValues rms(dtype, shape), rms_again(dtype, shape), rms_sum(dtype, shape);
      RmsNormForward rms_op{.x = x.view(),
                            .delta = delta.view(),
                            .weight = weight.view(),
                            .eps = kEps,
                            .sum = rms_sum.view(),
                            .y = rms.view(),
                            .rstd = rstd.view()};
      rms_norm(threads.stream, rms_op);
      EXPECT_TRUE(rms_sum.bytes() == expected_sum.bytes());
      rms_op.x = rms_sum.view(), rms_op.delta = {}, rms_op.sum = {}, rms_op.y = rms_again.view();
      rms_norm(threads.stream, rms_op);
      EXPECT_TRUE(rms_again.bytes() == rms.bytes());
    }
}

struct BackwardCase {
  DType dtype, sums;
  std::int64_t rows, n;
  bool add;
};
std::vector<BackwardCase> backward_cases() {
  std::vector<BackwardCase> cases;
  for (const SummedTypes types : kSummedTypes)
    for (const bool add : {false, true})
      for (const std::int64_t n : {1, 7, 33}) cases.push_back({types.values, types.sums, 19, n, add});
  return cases;
}

// Allows for the rounding of `count` summed terms of size about 1, and of what was there before.
double sum_error(DType dtype, double value, double count) { return allowed_error(dtype, value, 1e-5) + 1e-5 * count; }

TEST(LayerNorm, GradientsMatchFiniteDifferences) {
  Threads threads(2);
  for (const auto& [dtype, sums, rows, n, add] : backward_cases()) {
    const Shape shape{rows, n};
    const auto x = TypedValues::random(dtype, shape, 1), dy = TypedValues::random(dtype, shape, 2);
    const auto weight = TypedValues::random(dtype, {n}, 3), bias = TypedValues::random(dtype, {n}, 4);
    TypedValues y(dtype, shape), mean(DType::f32, {rows}), rstd(DType::f32, {rows});
    const float eps = 0.1f;  // a row of one element has no deviation
    layer_norm(threads.stream, {.x = x.view(),
                                .delta = {},
                                .weight = weight.view(),
                                .bias = bias.view(),
                                .eps = eps,
                                .sum = {},
                                .y = y.view(),
                                .mean = mean.view(),
                                .rstd = rstd.view()});
    auto dx = TypedValues::random(dtype, shape, 5), dweight = TypedValues::random(sums, {n}, 6),
         dbias = TypedValues::random(sums, {n}, 7);
    const auto dx0 = dx, dweight0 = dweight, dbias0 = dbias;
    const Write write = add ? Write::add : Write::overwrite;
    layer_norm_backward(threads.stream, {.dy = dy.view(),
                                         .x = x.view(),
                                         .weight = weight.view(),
                                         .mean = mean.view(),
                                         .rstd = rstd.view(),
                                         .dx = dx.view(),
                                         .dweight = dweight.view(),
                                         .dbias = dbias.view(),
                                         .write_dx = write,
                                         .write_dweight = write,
                                         .write_dbias = write});
    Values xs = doubles(x), ws = doubles(weight), bs = doubles(bias);
    const auto norm = [&] { return exact_norm(xs, ws, bs, double{eps}, true).y; };
    const auto dys = doubles(dy);
    for (std::int64_t i = 0; i < rows * n; ++i) {
      const double exact = difference(xs, static_cast<std::size_t>(i), norm, dys) + (add ? dx0[i] : 0);
      ASSERT_NEAR(dx[i], exact, sum_error(dtype, exact, 1)) << name_of(dtype) << " n " << n;
    }
    for (std::int64_t j = 0; j < n; ++j) {
      const double exact_w = difference(ws, static_cast<std::size_t>(j), norm, dys) + (add ? dweight0[j] : 0);
      const double exact_b = difference(bs, static_cast<std::size_t>(j), norm, dys) + (add ? dbias0[j] : 0);
      ASSERT_NEAR(dweight[j], exact_w, sum_error(sums, exact_w, 19)) << name_of(dtype) << " n " << n;
      ASSERT_NEAR(dbias[j], exact_b, sum_error(sums, exact_b, 19)) << name_of(dtype) << " n " << n;
    }
  }
}

TEST(RmsNorm, MatchesDoublesAndFiniteDifferences) {
  Threads threads(2);
  for (const auto& [dtype, sums, rows, n, add] : backward_cases()) {
    const Shape shape{rows, n};
    const auto x = TypedValues::random(dtype, shape, 1), dy = TypedValues::random(dtype, shape, 2);
    const auto weight = TypedValues::random(dtype, {n}, 3);
    TypedValues y(dtype, shape), rstd(DType::f32, {rows});
    const float eps = 0.1f;
    rms_norm(threads.stream, {.x = x.view(),
                              .delta = {},
                              .weight = weight.view(),
                              .eps = eps,
                              .sum = {},
                              .y = y.view(),
                              .rstd = rstd.view()});
    auto dx = TypedValues::random(dtype, shape, 5), dweight = TypedValues::random(sums, {n}, 6);
    const auto dx0 = dx, dweight0 = dweight;
    const Write write = add ? Write::add : Write::overwrite;
    rms_norm_backward(threads.stream, {.dy = dy.view(),
                                       .x = x.view(),
                                       .weight = weight.view(),
                                       .rstd = rstd.view(),
                                       .dx = dx.view(),
                                       .dweight = dweight.view(),
                                       .write_dx = write,
                                       .write_dweight = write});
    Values xs = doubles(x), ws = doubles(weight);
    const auto norm = [&] { return exact_norm(xs, ws, {}, double{eps}, false).y; };
    const auto exact_y = norm(), dys = doubles(dy);
    for (std::int64_t i = 0; i < rows * n; ++i) {
      const double value = exact_y[static_cast<std::size_t>(i)];
      ASSERT_NEAR(y[i], value, allowed_error(dtype, value, 2e-6)) << name_of(dtype) << " n " << n;
      const double exact = difference(xs, static_cast<std::size_t>(i), norm, dys) + (add ? dx0[i] : 0);
      ASSERT_NEAR(dx[i], exact, sum_error(dtype, exact, 1)) << name_of(dtype) << " n " << n;
    }
    for (std::int64_t j = 0; j < n; ++j) {
      const double exact = difference(ws, static_cast<std::size_t>(j), norm, dys) + (add ? dweight0[j] : 0);
      ASSERT_NEAR(dweight[j], exact, sum_error(sums, exact, 19)) << name_of(dtype) << " n " << n;
    }
  }
}

// The heads of q inside (B, T, width) rows give what plain rows of head_dim give.
TEST(RmsNormHeads, EqualsRmsNormOfEveryHead) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes) {
    constexpr std::int64_t kBatch = 2, kTime = 21, kWidth = 100, kHeads = 3, kDim = 24, kFirst = 10;
    const Shape wide{kBatch, kTime, kWidth}, packed{kBatch * kTime * kHeads, kDim};
    const auto x = TypedValues::random(dtype, wide, 1), dy = TypedValues::random(dtype, wide, 2);
    const auto weight = TypedValues::random(dtype, {kDim}, 3);
    const auto pack = [&](const TypedValues& from) {
      TypedValues to(dtype, packed);
      for (std::int64_t i = 0; i < to.elements(); ++i)
        to.set(i, static_cast<float>(from[i / (kHeads * kDim) * kWidth + kFirst + i % (kHeads * kDim)]));
      return to;
    };
    const auto heads = [](auto view) { return heads_of(view, kFirst, kHeads, kDim); };
    auto y = TypedValues::random(dtype, wide, 4), dx = TypedValues::random(dtype, wide, 5);
    const auto y_before = y;
    TypedValues rstd(DType::f32, {kBatch * kTime, kHeads}), dweight(dtype, {kDim});
    rms_norm_heads(threads.stream, heads(x.view()), weight.view(), kEps, heads(y.view()), rstd.view());
    rms_norm_heads_backward(threads.stream, heads(dy.view()), heads(x.view()), weight.view(), rstd.view(),
                            heads(dx.view()), dweight.view(), Write::overwrite);

    const auto rows_x = pack(x), rows_dy = pack(dy);
    TypedValues rows_y(dtype, packed), rows_dx(dtype, packed), rows_rstd(DType::f32, {kBatch * kTime * kHeads}),
        rows_dweight(dtype, {kDim});
    rms_norm(threads.stream, {.x = rows_x.view(),
                              .delta = {},
                              .weight = weight.view(),
                              .eps = kEps,
                              .sum = {},
                              .y = rows_y.view(),
                              .rstd = rows_rstd.view()});
    rms_norm_backward(threads.stream, {.dy = rows_dy.view(),
                                       .x = rows_x.view(),
                                       .weight = weight.view(),
                                       .rstd = rows_rstd.view(),
                                       .dx = rows_dx.view(),
                                       .dweight = rows_dweight.view(),
                                       .write_dx = Write::overwrite,
                                       .write_dweight = Write::overwrite});
    EXPECT_TRUE(pack(y).bytes() == rows_y.bytes());
    EXPECT_TRUE(pack(dx).bytes() == rows_dx.bytes());
    EXPECT_TRUE(rstd.bytes() == rows_rstd.bytes());
    for (std::int64_t j = 0; j < kDim; ++j)  // other row blocks, so only nearly
      EXPECT_NEAR(dweight[j], rows_dweight[j], sum_error(dtype, rows_dweight[j], 19));
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      const bool inside = i % kWidth >= kFirst && i % kWidth < kFirst + kHeads * kDim;
      ASSERT_TRUE(inside || y[i] == y_before[i]) << i;
    }
  }
}

TEST(Norm, SameBitsForAnyThreadCount) {
  for (const DType dtype : kFloatTypes)
    expect_same_bits_for_any_thread_count([dtype](CpuStream& stream) {
      const Shape shape{1500, 70};
      const auto x = TypedValues::random(dtype, shape, 1), dy = TypedValues::random(dtype, shape, 2);
      const auto weight = TypedValues::random(dtype, {70}, 3);
      TypedValues y(dtype, shape), dx(dtype, shape), dweight(dtype, {70}), dbias(dtype, {70});
      TypedValues mean(DType::f32, {1500}), rstd(DType::f32, {1500});
      layer_norm(stream, {.x = x.view(),
                          .delta = {},
                          .weight = weight.view(),
                          .bias = weight.view(),
                          .eps = kEps,
                          .sum = {},
                          .y = y.view(),
                          .mean = mean.view(),
                          .rstd = rstd.view()});
      layer_norm_backward(stream, {.dy = dy.view(),
                                   .x = x.view(),
                                   .weight = weight.view(),
                                   .mean = mean.view(),
                                   .rstd = rstd.view(),
                                   .dx = dx.view(),
                                   .dweight = dweight.view(),
                                   .dbias = dbias.view(),
                                   .write_dx = Write::overwrite,
                                   .write_dweight = Write::overwrite,
                                   .write_dbias = Write::overwrite});
      return std::vector{y, dx, dweight, dbias, mean, rstd};
    });
}

}  // namespace
}  // namespace zeepo
