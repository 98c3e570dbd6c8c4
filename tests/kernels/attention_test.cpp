#include "zeepo/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/typed_values.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

struct AttentionCase {
  std::int64_t batch, queries, keys, heads, kv_heads, dim, window;
  float dropout;
};

std::ostream& operator<<(std::ostream& out, const AttentionCase& t) {
  return out << "B " << t.batch << " Tq " << t.queries << " Tk " << t.keys << " H " << t.heads << "/" << t.kv_heads
             << " D " << t.dim << " window " << t.window << " dropout " << t.dropout;
}

const AttentionCase kSquare[] = {
    {1, 1, 1, 1, 1, 8, 0, 0},      {2, 7, 7, 2, 2, 8, 0, 0},       {1, 70, 70, 4, 2, 16, 0, 0},
    {2, 65, 65, 3, 1, 24, 20, 0},  {1, 300, 300, 2, 1, 8, 0, 0},   {1, 300, 300, 2, 2, 8, 33, 0},
    {4, 9, 9, 4, 4, 20, 4, 0},     {2, 40, 40, 16, 8, 8, 0, 0},    {1, 64, 64, 2, 2, 256, 0, 0},
    {2, 37, 37, 8, 8, 8, 0, 0.3f}, {1, 270, 270, 2, 1, 8, 0, 0.2f}};
const AttentionCase kCached[] = {{1, 1, 50, 2, 2, 8, 0, 0},      {2, 1, 1300, 4, 1, 16, 0, 0},
                                 {1, 1, 1300, 4, 4, 17, 100, 0}, {1, 3, 600, 4, 2, 64, 0, 0},
                                 {2, 5, 9, 4, 4, 8, 3, 0},       {1, 70, 400, 4, 2, 8, 0, 0},
                                 {1, 100, 700, 2, 1, 16, 90, 0}, {1, 2, 530, 4, 1, 24, 3, 0}};

// q, k and v as parts of wider rows, like a fused projection; the gaps must stay untouched.
struct Inputs {
  explicit Inputs(const AttentionCase& t, DType dtype)
      : q(TypedValues::random(dtype, {t.batch, t.queries, t.heads * t.dim + 5}, 1)),
        kv(TypedValues::random(dtype, {t.batch, t.keys, 2 * t.kv_heads * t.dim}, 2)),
        dout(TypedValues::random(dtype, {t.batch, t.queries, t.heads * t.dim}, 3)) {}
  TypedValues q, kv, dout;
};
template <class V>
auto query_heads(const AttentionCase& t, V view) {
  return heads_of(view, 5, t.heads, t.dim);
}
template <class V>
auto key_heads(const AttentionCase& t, V view) {
  return heads_of(view, 0, t.kv_heads, t.dim);
}
template <class V>
auto value_heads(const AttentionCase& t, V view) {
  return heads_of(view, t.kv_heads * t.dim, t.kv_heads, t.dim);
}

AttentionOptions options_of(const AttentionCase& t) {
  return {.scale = 1 / std::sqrt(static_cast<float>(t.dim)), .window = t.window, .dropout = t.dropout, .key = {77}};
}

// Everything in doubles, from the definition.
struct Reference {
  std::vector<double> out, log_sums, dq, dk, dv;  // dense (B, T, H, D) and (B, H, Tq)
};
Reference reference(const AttentionCase& t, const Inputs& x) {
  const AttentionOptions options = options_of(t);
  const std::int64_t group = t.heads / t.kv_heads, q_width = t.heads * t.dim + 5, kv_width = 2 * t.kv_heads * t.dim;
  Reference r;
  r.out.resize(static_cast<std::size_t>(t.batch * t.queries * t.heads * t.dim));
  r.dq.resize(r.out.size());
  r.log_sums.resize(static_cast<std::size_t>(t.batch * t.heads * t.queries));
  r.dk.resize(static_cast<std::size_t>(t.batch * t.keys * t.kv_heads * t.dim));
  r.dv.resize(r.dk.size());
  for (std::int64_t b = 0; b < t.batch; ++b)
    for (std::int64_t h = 0; h < t.heads; ++h)
      for (std::int64_t i = 0; i < t.queries; ++i) {
        const std::int64_t kv = h / group, position = t.keys - t.queries + i;
        const std::int64_t first = t.window ? std::max<std::int64_t>(0, position - t.window + 1) : 0;
        const auto q = [&](std::int64_t d) { return x.q[(b * t.queries + i) * q_width + 5 + h * t.dim + d]; };
        const auto k = [&](std::int64_t j, std::int64_t d) {
          return x.kv[(b * t.keys + j) * kv_width + kv * t.dim + d];
        };
        const auto v = [&](std::int64_t j, std::int64_t d) {
          return x.kv[(b * t.keys + j) * kv_width + (t.kv_heads + kv) * t.dim + d];
        };
        const auto keep = [&](std::int64_t j) {
          const auto index = static_cast<std::uint64_t>(((b * t.heads + h) * t.queries + i) * t.keys + j);
          return t.dropout > 0 && uniform(options.key, index) < t.dropout ? 0 : 1 / (1.0 - t.dropout);
        };
        std::vector<double> weights, dweights;
        double sum = 0;
        for (std::int64_t j = first; j <= position; ++j) {
          double product = 0;
          for (std::int64_t d = 0; d < t.dim; ++d) product += q(d) * k(j, d);
          weights.push_back(std::exp(options.scale * product));
          sum += weights.back();
        }
        r.log_sums[static_cast<std::size_t>((b * t.heads + h) * t.queries + i)] = std::log(sum);
        const std::int64_t row = ((b * t.queries + i) * t.heads + h) * t.dim;
        double delta = 0;
        for (std::int64_t j = first; j <= position; ++j) {
          double& weight = weights[static_cast<std::size_t>(j - first)];
          weight /= sum;
          double dweight = 0;
          for (std::int64_t d = 0; d < t.dim; ++d) {
            const double dout = x.dout[row + d];
            r.out[static_cast<std::size_t>(row + d)] += weight * keep(j) * v(j, d);
            r.dv[static_cast<std::size_t>(((b * t.keys + j) * t.kv_heads + kv) * t.dim + d)] += weight * keep(j) * dout;
            dweight += dout * v(j, d) * keep(j);
          }
          dweights.push_back(dweight);
          delta += weight * dweight;
        }
        for (std::int64_t j = first; j <= position; ++j) {
          const auto at = static_cast<std::size_t>(j - first);
          const double dproduct = options.scale * weights[at] * (dweights[at] - delta);
          for (std::int64_t d = 0; d < t.dim; ++d) {
            r.dq[static_cast<std::size_t>(row + d)] += dproduct * k(j, d);
            r.dk[static_cast<std::size_t>(((b * t.keys + j) * t.kv_heads + kv) * t.dim + d)] += dproduct * q(d);
          }
        }
      }
  return r;
}

struct Outputs {
  TypedValues out, log_sums, dq, dkv;
};
Outputs run(const AttentionCase& t, const Inputs& x, DType dtype, int threads, bool backward) {
  ThreadPool pool(threads);
  CpuStream stream(pool);
  Outputs r{TypedValues(dtype, {t.batch, t.queries, t.heads * t.dim}),
            TypedValues(DType::f32, {t.batch, t.heads, t.queries}), x.q, x.kv};
  const auto out = heads_of(r.out.view(), 0, t.heads, t.dim);
  const auto q = query_heads(t, x.q.view()), k = key_heads(t, x.kv.view()), v = value_heads(t, x.kv.view());
  attention(stream, q, k, v, out, r.log_sums.view(), options_of(t));
  if (backward)
    attention_backward(stream,
                       {q, k, v, out, heads_of(x.dout.view(), 0, t.heads, t.dim), r.log_sums.view(),
                        query_heads(t, r.dq.view()), key_heads(t, r.dkv.view()), value_heads(t, r.dkv.view())},
                       options_of(t));
  return r;
}

void expect_forward(const AttentionCase& t, DType dtype, const Outputs& got, const Reference& expected) {
  for (std::size_t i = 0; i < expected.out.size(); ++i)
    ASSERT_NEAR(got.out[static_cast<std::int64_t>(i)], expected.out[i],
                1.1 * rounding_of(dtype) * std::abs(expected.out[i]) + 3e-6)
        << name_of(dtype) << " " << t << " element " << i;
  for (std::size_t i = 0; i < expected.log_sums.size(); ++i)
    ASSERT_NEAR(got.log_sums[static_cast<std::int64_t>(i)], expected.log_sums[i],
                3e-6 * (1 + std::abs(expected.log_sums[i])));
}

TEST(Attention, MatchesDoubles) {
  for (const DType dtype : kFloatTypes) {
    for (const auto& list : {std::vector<AttentionCase>(std::begin(kSquare), std::end(kSquare)),
                             std::vector<AttentionCase>(std::begin(kCached), std::end(kCached))}) {
      for (const AttentionCase& t : list) {
        const Inputs x(t, dtype);
        expect_forward(t, dtype, run(t, x, dtype, 2, false), reference(t, x));
      }
    }
  }
}

TEST(Attention, BackwardMatchesDoubles) {
  for (const DType dtype : kFloatTypes) {
    for (const AttentionCase& t : kSquare) {
      const Inputs x(t, dtype);
      const Reference expected = reference(t, x);
      const Outputs got = run(t, x, dtype, 2, true);
      // delta comes from the rounded output, so its rounding enters every gradient.
      const double loose = 6 * rounding_of(dtype) + 2e-5;
      const std::int64_t q_width = t.heads * t.dim, kv_width = t.kv_heads * t.dim;
      for (std::int64_t row = 0; row < t.batch * t.queries; ++row) {
        for (std::int64_t c = 0; c < q_width; ++c) {
          const double want = expected.dq[static_cast<std::size_t>(row * q_width + c)];
          ASSERT_NEAR(got.dq[row * (q_width + 5) + 5 + c], want, loose * (1 + std::abs(want))) << "dq " << t;
        }
        for (std::int64_t c = 0; c < 5; ++c) ASSERT_EQ(got.dq[row * (q_width + 5) + c], x.q[row * (q_width + 5) + c]);
        for (std::int64_t c = 0; c < kv_width; ++c) {
          const double dk = expected.dk[static_cast<std::size_t>(row * kv_width + c)];
          const double dv = expected.dv[static_cast<std::size_t>(row * kv_width + c)];
          ASSERT_NEAR(got.dkv[row * 2 * kv_width + c], dk, loose * (1 + std::abs(dk)))
              << "dk " << name_of(dtype) << " " << t;
          ASSERT_NEAR(got.dkv[row * 2 * kv_width + kv_width + c], dv, loose * (1 + std::abs(dv))) << "dv " << t;
        }
      }
    }
  }
}

// The reference is written by the same hand as the kernel: finite differences of it are not.
TEST(Attention, BackwardMatchesFiniteDifferences) {
  const AttentionCase t{1, 6, 6, 2, 1, 8, 4, 0.2f};
  Inputs x(t, DType::f32);
  const Outputs got = run(t, x, DType::f32, 1, true);
  const auto value = [&] {
    const Reference r = reference(t, x);
    double sum = 0;
    for (std::size_t i = 0; i < r.out.size(); ++i) sum += r.out[i] * x.dout[static_cast<std::int64_t>(i)];
    return sum;
  };
  const auto check = [&](TypedValues& values, const TypedValues& gradient, std::int64_t i) {
    const auto before = static_cast<float>(values[i]);
    constexpr float kStep = 0x1p-8f;
    values.set(i, before + kStep);
    const double up = value(), above = values[i];
    values.set(i, before - kStep);
    const double down = value(), below = values[i];
    values.set(i, before);
    EXPECT_NEAR(gradient[i], (up - down) / (above - below), 2e-4) << "element " << i;
  };
  for (std::int64_t i = 5; i < x.q.elements(); i += 21) check(x.q, got.dq, i);
  for (std::int64_t i = 0; i < x.kv.elements(); i += 3) check(x.kv, got.dkv, i);
}

TEST(Attention, GivesTheSameBitsForAnyThreadCount) {
  for (const DType dtype : kFloatTypes) {
    for (const AttentionCase& t :
         {AttentionCase{2, 300, 300, 4, 2, 16, 0, 0.1f}, AttentionCase{4, 70, 70, 8, 8, 8, 30, 0}}) {
      const Inputs x(t, dtype);
      const Outputs first = run(t, x, dtype, 1, true);
      for (const int threads : {2, 3, 5}) {
        const Outputs again = run(t, x, dtype, threads, true);
        EXPECT_EQ(again.out.bytes(), first.out.bytes());
        EXPECT_EQ(again.log_sums.bytes(), first.log_sums.bytes());
        EXPECT_EQ(again.dq.bytes(), first.dq.bytes());
        EXPECT_EQ(again.dkv.bytes(), first.dkv.bytes());
      }
    }
    const AttentionCase decode{2, 1, 2000, 4, 2, 16, 0, 0};
    const Inputs x(decode, dtype);
    EXPECT_EQ(run(decode, x, dtype, 1, false).out.bytes(), run(decode, x, dtype, 3, false).out.bytes());
  }
}

TEST(Attention, DropsTheShareItIsAskedFor) {
  // Values of 1 make each output the sum of its kept weights over 1 − p, so their mean is 1.
  const AttentionCase t{2, 128, 128, 8, 8, 8, 0, 0.25f};
  Inputs x(t, DType::f32);
  for (std::int64_t i = 0; i < x.kv.elements(); ++i) x.kv.set(i, 1);
  const Outputs got = run(t, x, DType::f32, 2, false);
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < got.out.elements(); ++i) {
    sum += got.out[i];
    squares += got.out[i] * got.out[i];
  }
  const auto n = static_cast<double>(got.out.elements());
  EXPECT_NEAR(sum / n, 1, 0.02);
  EXPECT_GT(squares / n - 1, 1e-3);
}

TEST(Attention, RefusesWhatDoesNotFit) {
  const AttentionCase t{1, 4, 4, 2, 2, 8, 0, 0};
  const Inputs x(t, DType::f32);
  TypedValues out(DType::f32, {1, 4, 16}), log_sums(DType::f32, {1, 2, 3});
  ThreadPool pool(1);
  CpuStream stream(pool);
  const auto q = query_heads(t, x.q.view()), k = key_heads(t, x.kv.view());
  const auto to = heads_of(out.view(), 0, 2, 8);
  EXPECT_NO_THROW(attention(stream, q, k, k, to, {}, {}));
  EXPECT_THROW(attention(stream, q, k, k, to, log_sums.view(), {}), Error);
  EXPECT_THROW(attention(stream, q, k, k, to, {}, {.scale = 0}), Error);
  EXPECT_THROW(attention(stream, q, k, k, to, {}, {.dropout = 1}), Error);
  auto short_keys = k;
  short_keys.rows = 3;
  EXPECT_THROW(attention(stream, q, short_keys, short_keys, to, {}, {}), Error);
}

}  // namespace
}  // namespace zeepo
