#include "zeepo/kernels/optimizer.h"

#include <limits>

#include "tests/kernels/kernel_checks.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::int64_t kSizes[] = {1, 15, 16, 33, 1000, 70'001};

// Flat weights in one of the three forms, with their fp32 values to look at.
class FormOfWeights {
 public:
  FormOfWeights(CpuStream& stream, DType dtype, const TypedValues& fp32)
      : stream_(stream),
        param_(dtype, {fp32.elements()}),
        low_(static_cast<std::size_t>(fp32.elements()) * 4),
        n_(fp32.elements()) {
    write_master(stream, fp32.view(), weights());
  }
  Weights weights() {
    const DType dtype = param_.view().dtype;
    if (dtype == DType::f32) return {param_.view(), {}};
    return {param_.view(), {low_.data(), dtype == DType::bf16 ? DType::i16 : DType::f32, {n_}}};
  }
  TypedValues fp32() {
    TypedValues values(DType::f32, {n_});
    read_master(stream_, weights(), values.view());
    return values;
  }
  const TypedValues& param() const { return param_; }

 private:
  CpuStream& stream_;
  TypedValues param_;
  std::vector<std::byte> low_;
  std::int64_t n_;
};

TypedValues control_of(float grad_factor, float skip = 0) {
  TypedValues control(DType::f32, {3});
  *control.view().as<StepControl>() = {.norm = 1, .grad_factor = grad_factor, .skip = skip};
  return control;
}

TEST(MasterWeights, KeepEveryPattern) {
  Threads threads(2);
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; ++high)
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x1234u, 0x7ffeu, 0x7fffu, 0x8000u, 0x8001u, 0xabcdu, 0xffffu})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  for (std::uint32_t low = 0; low < 0x10000; ++low) values.push_back(std::bit_cast<float>(0x3f800000u | low));
  const Shape shape{static_cast<std::int64_t>(values.size())};
  TypedValues fp32(DType::f32, shape);
  std::memcpy(fp32.view().data, values.data(), fp32.bytes().size());
  for (const DType dtype : kFloatTypes) {
    FormOfWeights form(threads.stream, dtype, fp32);
    EXPECT_TRUE(form.fp32().bytes() == fp32.bytes()) << name_of(dtype);
  }
}

TEST(MasterWeights, ParamIsTheNearestOfItsType) {
  Threads threads(2);
  const auto fp32 = TypedValues::random(DType::f32, {5000}, 1);
  for (const DType dtype : kFloatTypes) {
    FormOfWeights form(threads.stream, dtype, fp32);
    for (std::int64_t i = 0; i < 5000; ++i)  // a tie may go either way: half a unit, which is 2^-8 of a bf16 number
      ASSERT_LE(std::abs(form.param()[i] - fp32[i]), rounding_of(dtype) * std::abs(fp32[i])) << name_of(dtype);
  }
}

TEST(MasterWeights, RejectOtherForms) {
  Threads threads(1);
  TypedValues fp32(DType::f32, {4}), param(DType::bf16, {4});
  EXPECT_THROW(write_master(threads.stream, fp32.view(), {param.view(), {}}), Error);
  EXPECT_THROW(write_master(threads.stream, fp32.view(), {param.view(), fp32.view()}), Error);
}

// The scalar code that adam.cpp promises, in plain C++.
void scalar_adam(float grad, float& p, float& m, float& v, float grad_factor, const AdamOptions& o) {
  const auto rest1 = static_cast<float>(1.0 - double{o.beta1}), rest2 = static_cast<float>(1.0 - double{o.beta2});
  const auto step = static_cast<float>(double{o.lr} / double{o.correction1});
  const auto root = static_cast<float>(1.0 / std::sqrt(double{o.correction2}));
  const auto decay = o.decoupled ? static_cast<float>(double{o.lr} * double{o.weight_decay}) : o.weight_decay;
  float g = grad * grad_factor;
  if (!o.decoupled) g = std::fma(decay, p, g);
  m = std::fma(o.beta1, m, rest1 * g);
  v = std::fma(o.beta2, v, (rest2 * g) * g);
  if (o.decoupled) p = std::fma(-decay, p, p);
  p = std::fma(-step, m / std::fma(std::sqrt(v), root, o.eps), p);
}

AdamOptions adam_options(int t, bool decoupled) {
  AdamOptions o{.lr = 1e-2f,
                .beta1 = 0.9f,
                .beta2 = 0.95f,
                .eps = 1e-8f,
                .weight_decay = 0.1f,
                .correction1 = 0,
                .correction2 = 0,
                .decoupled = decoupled};
  o.correction1 = static_cast<float>(1 - std::pow(double{o.beta1}, t));
  o.correction2 = static_cast<float>(1 - std::pow(double{o.beta2}, t));
  return o;
}

TEST(Adam, HasTheBitsOfTheScalarCode) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const DType grad_dtype : {dtype, DType::f32})
      for (const bool decoupled : {true, false})
        for (const auto n : kSizes) {
          auto expected = TypedValues::random(DType::f32, {n}, 1);
          FormOfWeights form(threads.stream, dtype, expected);
          TypedValues m(DType::f32, {n}), v(DType::f32, {n}), expected_m = m, expected_v = v;
          const auto control = control_of(0.37f);
          for (int t = 1; t <= 3; ++t) {
            const auto grad = TypedValues::random(grad_dtype, {n}, 10 + static_cast<std::uint64_t>(t));
            const auto options = adam_options(t, decoupled);
            adam(threads.stream, form.weights(), grad.view(), m.view(), v.view(), control.view(), options);
            for (std::int64_t i = 0; i < n; ++i)
              scalar_adam(static_cast<float>(grad[i]), expected.view().as<float>()[i], expected_m.view().as<float>()[i],
                          expected_v.view().as<float>()[i], 0.37f, options);
          }
          ASSERT_TRUE(m.bytes() == expected_m.bytes()) << name_of(dtype) << " " << n;
          ASSERT_TRUE(v.bytes() == expected_v.bytes()) << name_of(dtype) << " " << n;
          ASSERT_TRUE(form.fp32().bytes() == expected.bytes()) << name_of(dtype) << " " << n;
        }
}

TEST(Adam, MatchesDoubles) {
  Threads threads(2);
  constexpr std::int64_t kCount = 1001;
  for (const bool decoupled : {true, false}) {
    const auto start = TypedValues::random(DType::f32, {kCount}, 1);
    FormOfWeights form(threads.stream, DType::f32, start);
    TypedValues m(DType::f32, {kCount}), v(DType::f32, {kCount});
    std::vector<double> p, first(kCount), second(kCount);
    for (std::int64_t i = 0; i < kCount; ++i) p.push_back(start[i]);
    for (int t = 1; t <= 10; ++t) {
      const auto grad = TypedValues::random(DType::f32, {kCount}, 10 + static_cast<std::uint64_t>(t));
      const auto o = adam_options(t, decoupled);
      adam(threads.stream, form.weights(), grad.view(), m.view(), v.view(), control_of(0.5f).view(), o);
      const double b1 = o.beta1, b2 = o.beta2, lr = o.lr, wd = o.weight_decay;
      for (std::size_t i = 0; i < kCount; ++i) {
        double g = 0.5 * grad[static_cast<std::int64_t>(i)];
        if (!decoupled) g += wd * p[i];
        first[i] = b1 * first[i] + (1 - b1) * g;
        second[i] = b2 * second[i] + (1 - b2) * g * g;
        if (decoupled) p[i] -= lr * wd * p[i];
        const double m_hat = first[i] / (1 - std::pow(b1, t)), v_hat = second[i] / (1 - std::pow(b2, t));
        p[i] -= lr * m_hat / (std::sqrt(v_hat) + double{o.eps});
      }
    }
    const auto result = form.fp32();
    for (std::int64_t i = 0; i < kCount; ++i) ASSERT_NEAR(result[i], p[static_cast<std::size_t>(i)], 2e-6);
  }
}

TEST(Adam, SkipsWhenToldTo) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes) {
    const auto start = TypedValues::random(DType::f32, {999}, 1), grad = TypedValues::random(dtype, {999}, 2);
    FormOfWeights form(threads.stream, dtype, start);
    auto m = TypedValues::random(DType::f32, {999}, 3), v = TypedValues::random(DType::f32, {999}, 4);
    const auto m0 = m, v0 = v;
    adam(threads.stream, form.weights(), grad.view(), m.view(), v.view(), control_of(1, 1).view(),
         adam_options(1, true));
    sgd(threads.stream, form.weights(), grad.view(), m.view(), control_of(1, 1).view(),
        {.lr = 1, .momentum = 0.9f, .weight_decay = 0.1f, .first_step = true});
    EXPECT_TRUE(form.fp32().bytes() == start.bytes() && m.bytes() == m0.bytes() && v.bytes() == v0.bytes());
  }
}

TEST(Sgd, HasTheBitsOfTheScalarCode) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const float momentum : {0.0f, 0.9f})
      for (const auto n : kSizes) {
        auto expected = TypedValues::random(DType::f32, {n}, 1);
        FormOfWeights form(threads.stream, dtype, expected);
        TypedValues b(DType::f32, {n}), expected_b = b;
        for (int t = 0; t < 3; ++t) {
          const auto grad = TypedValues::random(dtype, {n}, 5 + static_cast<std::uint64_t>(t));
          const SgdOptions o{.lr = 0.1f, .momentum = momentum, .weight_decay = 0.01f, .first_step = t == 0};
          sgd(threads.stream, form.weights(), grad.view(), momentum == 0 ? View{} : b.view(), control_of(0.5f).view(),
              o);
          for (std::int64_t i = 0; i < n; ++i) {
            float& p = expected.view().as<float>()[i];
            float& kept = expected_b.view().as<float>()[i];
            const float g = std::fma(o.weight_decay, p, static_cast<float>(grad[i]) * 0.5f);
            kept = o.first_step ? g : std::fma(momentum, kept, g);
            p = std::fma(-o.lr, kept, p);
          }
        }
        ASSERT_TRUE(form.fp32().bytes() == expected.bytes()) << name_of(dtype) << " " << n;
        ASSERT_TRUE(momentum == 0 || b.bytes() == expected_b.bytes());
      }
}

// A node over 2^level leaves from element `begin` on, in the order that kernels/gradient_norm.h gives.
float reference_node(const TypedValues& x, std::int64_t begin, int level) {
  if (level > 0)
    return reference_node(x, begin, level - 1) + reference_node(x, begin + (kNormLeaf << (level - 1)), level - 1);
  double chain[64] = {};
  for (std::int64_t i = 0; i < kNormLeaf && begin + i < x.elements(); ++i) chain[i % 64] += x[begin + i] * x[begin + i];
  for (int half = 32; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) chain[j] += chain[j + half];
  return static_cast<float>(chain[0]);
}

TEST(SumSquares, AddsInTheWrittenOrder) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t n : {1L, 63L, 64L, 65L, 1000L, kNormBlock, 2 * kNormBlock + 77}) {
      const auto x = TypedValues::random(dtype, {n}, 1);
      for (const std::int64_t begin : {std::int64_t{0}, 3 * kNormLeaf, kNormBlock - kNormLeaf, 2 * kNormBlock}) {
        TypedValues nodes(DType::f32, {norm_nodes(begin, n)});
        sum_squares(threads.stream, x.view(), begin, nodes.view());
        std::int64_t node = 0;
        for_norm_nodes(begin, n, [&](std::int64_t block, std::uint32_t first, int level) {
          const std::int64_t origin = block * kNormBlock + first * kNormLeaf - begin;
          ASSERT_EQ(nodes[node++], double{reference_node(x, origin, level)}) << name_of(dtype) << " " << n;
        });
        EXPECT_EQ(node, nodes.elements());
      }
    }
}

// However elements are cut, their nodes make the same blocks.
TEST(SumSquares, MergesToTheSameBitsHoweverItIsCut) {
  Threads threads(2);
  const std::int64_t n = 3 * kNormBlock + 5 * kNormLeaf;
  for (const DType dtype : kFloatTypes) {
    const auto x = TypedValues::random(dtype, {n}, 1);
    const auto blocks_of_cuts = [&](const std::vector<std::int64_t>& cuts) {
      std::vector<std::int32_t> starts, entries;
      std::vector<float> nodes;
      std::int64_t open = -1;
      for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
        const std::int64_t begin = cuts[i], count = cuts[i + 1] - begin;
        TypedValues part(DType::f32, {norm_nodes(begin, count)});
        const ConstView all = x.view();
        const auto* data = all.as<std::byte>() + static_cast<std::size_t>(begin) * size_of(dtype);
        sum_squares(threads.stream, ConstView{data, dtype, {count}}, begin, part.view());
        std::int64_t node = 0;
        for_norm_nodes(begin, count, [&](std::int64_t block, std::uint32_t, int level) {
          if (block != open) starts.push_back(static_cast<std::int32_t>(entries.size() / 2));
          open = block;
          entries.push_back(static_cast<std::int32_t>(nodes.size()));
          entries.push_back(level);
          nodes.push_back(static_cast<float>(part[node++]));
        });
      }
      starts.push_back(static_cast<std::int32_t>(entries.size() / 2));
      starts.insert(starts.end(), entries.begin(), entries.end());
      TypedValues blocks(DType::f32, {norm_blocks(n)});
      merge_norm_nodes(threads.stream, {nodes.data(), DType::f32, {static_cast<std::int64_t>(nodes.size())}},
                       {starts.data(), DType::i32, {static_cast<std::int64_t>(starts.size())}}, blocks.view());
      return blocks.bytes();
    };
    const auto whole = blocks_of_cuts({0, n});
    EXPECT_EQ(blocks_of_cuts({0, kNormLeaf, 100 * kNormLeaf, kNormBlock + 7 * kNormLeaf, n}), whole);
    EXPECT_EQ(blocks_of_cuts({0, kNormBlock, 2 * kNormBlock, n}), whole);
    for (const std::int64_t parts : {2, 3, 7, 600}) {
      std::vector<std::int64_t> cuts{0};
      for (std::int64_t i = 1; i < parts; ++i) cuts.push_back(n / kNormLeaf * i / parts * kNormLeaf);
      cuts.push_back(n);
      EXPECT_EQ(blocks_of_cuts(cuts), whole) << parts;
    }
  }
}

StepControl finish(const std::vector<float>& partials, float loss_scale, float clip) {
  Threads threads(1);
  TypedValues control(DType::f32, {3});
  finish_norm(threads.stream, {partials.data(), DType::f32, {static_cast<std::int64_t>(partials.size())}}, loss_scale,
              clip, control.view());
  return *control.view().as<StepControl>();
}

TEST(FinishNorm, UnscalesAndClips) {
  const auto unclipped = finish({9, 16}, 1, 0);
  EXPECT_EQ(unclipped.norm, 5);
  EXPECT_EQ(unclipped.grad_factor, 1);
  EXPECT_EQ(unclipped.skip, 0);
  EXPECT_EQ(finish({9, 16}, 1, 10).grad_factor, 1) << "a smaller norm is left alone";
  EXPECT_FLOAT_EQ(finish({9, 16}, 1, 1).grad_factor, 1 / (5.0f + 1e-6f));
  const auto scaled = finish({9, 16}, 1024, 0.001f);
  EXPECT_FLOAT_EQ(scaled.norm, 5.0f / 1024);
  EXPECT_FLOAT_EQ(scaled.grad_factor, 0.001f / (5.0f / 1024 + 1e-6f) / 1024);
  EXPECT_EQ(finish({}, 1, 1).norm, 0);
}

TEST(FinishNorm, SkipsInfinityAndNan) {
  EXPECT_EQ(finish({1, std::numeric_limits<float>::infinity()}, 1, 1).skip, 1);
  EXPECT_EQ(finish({std::numeric_limits<float>::quiet_NaN(), 1}, 1, 0).skip, 1);
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      auto x = TypedValues::random(dtype, {kNormBlock + 5}, 1);
      x.set(kNormBlock + 3, bad);
      TypedValues partials(DType::f32, {norm_nodes(0, x.elements())}), control(DType::f32, {3});
      sum_squares(threads.stream, x.view(), 0, partials.view());
      finish_norm(threads.stream, partials.view(), 1, 1, control.view());
      EXPECT_EQ(control.view().as<StepControl>()->skip, 1) << name_of(dtype) << bad;
    }
}

TEST(Optimizer, SameBitsForAnyThreadCount) {
  expect_same_bits_for_any_thread_count([](CpuStream& stream) {
    constexpr std::int64_t kCount = 300'007;
    const auto grad = TypedValues::random(DType::bf16, {kCount}, 2);
    FormOfWeights form(stream, DType::bf16, TypedValues::random(DType::f32, {kCount}, 1));
    TypedValues m(DType::f32, {kCount}), v(DType::f32, {kCount}), partials(DType::f32, {norm_nodes(0, kCount)});
    TypedValues control(DType::f32, {3});
    sum_squares(stream, grad.view(), 0, partials.view());
    finish_norm(stream, partials.view(), 1, 1, control.view());
    adam(stream, form.weights(), grad.view(), m.view(), v.view(), control.view(), adam_options(1, true));
    return std::vector{form.fp32(), form.param(), m, v, partials, control};
  });
}

}  // namespace
}  // namespace zeepo
