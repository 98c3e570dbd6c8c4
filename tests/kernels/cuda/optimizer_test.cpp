// What the optimizer does is the same to the bit on the CPU and on the GPU: a shard may be stepped on either.
#include "zeepo/kernels/optimizer.h"

#include <limits>

#include "tests/kernels/cuda/cuda_checks.h"

namespace zeepo {
namespace {

constexpr std::int64_t kSizes[] = {1, 15, 33, 1000, 70'001};

// Weights in one of the three forms, in both memories.
struct TwinWeights {
  explicit TwinWeights(DType dtype, std::int64_t n, std::int64_t shift = 0)
      : param(zeros(dtype, n), shift), low(zeros(dtype == DType::f16 ? DType::f32 : DType::i16, n)) {}

  static TypedValues zeros(DType dtype, std::int64_t n) { return TypedValues(dtype, {n}); }
  template <class S>
  Weights on(S& s) {
    return {param.on(s), param.cpu().view().dtype == DType::f32 ? View{} : low.on(s)};
  }
  void expect_same_bits(const std::string& what) const {
    param.expect_same_bits("param " + what);
    if (param.cpu().view().dtype == DType::f32) return;
    EXPECT_TRUE(low.back().bytes() == low.cpu().bytes()) << "low " << what;
  }

  Twin param, low;
};

Twin control_of(float grad_factor, float skip = 0) {
  TypedValues control(DType::f32, {3});
  *control.view().as<StepControl>() = {.norm = 1, .grad_factor = grad_factor, .skip = skip};
  return Twin(control);
}

TEST(CudaMasterWeights, GoInAndOutWithTheBitsOfTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const auto n : kSizes)
      for (const std::int64_t shift : {0, 1}) {
        auto fp32 = Twin::random(DType::f32, {n}, 1);
        TwinWeights weights(dtype, n, shift);
        Twin back(DType::f32, {n});
        on_both([&](auto& s) {
          write_master(s, fp32.on(s), weights.on(s));
          read_master(s, weights.on(s), back.on(s));
        });
        weights.expect_same_bits(name_of_case(dtype, n, shift));
        EXPECT_TRUE(back.back().bytes() == fp32.cpu().bytes()) << name_of_case(dtype, n, shift);
      }
}

AdamOptions adam_options(std::int64_t step, bool decoupled) {
  const auto correction = [step](float beta) { return static_cast<float>(1 - std::pow(double{beta}, step)); };
  return {.lr = 1e-3f,
          .beta1 = 0.9f,
          .beta2 = 0.95f,
          .eps = 1e-8f,
          .weight_decay = 0.1f,
          .correction1 = correction(0.9f),
          .correction2 = correction(0.95f),
          .decoupled = decoupled};
}

TEST(CudaAdam, HasTheBitsOfTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const DType grad_type : kFloatTypes)
      for (const auto n : kSizes)
        for (const bool decoupled : {true, false}) {
          const std::int64_t shift = n == 1000 ? 1 : 0;
          auto fp32 = Twin::random(DType::f32, {n}, 1, 0.02f), grad = Twin::random(grad_type, {n}, 2, 1e-2f, shift);
          Twin m(TypedValues(DType::f32, {n})), v(TypedValues(DType::f32, {n}));
          auto control = control_of(0.37f);
          TwinWeights weights(dtype, n);
          on_both([&](auto& s) {
            write_master(s, fp32.on(s), weights.on(s));
            for (int step = 1; step <= 3; ++step) {
              const AdamOptions options = adam_options(step, decoupled);
              adam(s, weights.on(s), grad.on(s), m.on(s), v.on(s), control.on(s), options);
            }
          });
          const auto what = fmt::format("{} grads {} {}", name_of_case(dtype, n), name_of(grad_type), decoupled);
          weights.expect_same_bits(what);
          m.expect_same_bits("m " + what);
          v.expect_same_bits("v " + what);
        }
}

TEST(CudaAdam, RoundsNarrowMomentsAsTheCpuDoes) {
  constexpr Chance kChance{{0x1234567890abcdefu}, 384};
  for (const DType moments : {DType::bf16, DType::u8})
    for (const DType dtype : kFloatTypes)
      for (const DType grad_type : {dtype, DType::f32})
        for (const auto n : {1L, 15L, 128L, 1000L, 70'001L}) {
          auto fp32 = Twin::random(DType::f32, {n}, 1, 0.02f);
          const Shape blocks{(n + kMomentBlock - 1) / kMomentBlock};
          Twin m(TypedValues(moments, {n})), v(TypedValues(moments, {n}));
          Twin m_exponents(TypedValues(DType::u8, blocks)), v_exponents(TypedValues(DType::u8, blocks));
          auto control = control_of(0.37f);
          TwinWeights weights(dtype, n);
          on_both([&](auto& s) { write_master(s, fp32.on(s), weights.on(s)); });
          for (int step = 1; step <= 3; ++step) {
            auto values = TypedValues::random(grad_type, {n}, 2 + static_cast<std::uint64_t>(step), 1e-2f);
            for (std::int64_t i = 0; i < n; ++i)  // of very different sizes
              values.set(i, std::ldexp(static_cast<float>(values[i]), -static_cast<int>(i * i % 31)));
            Twin grad(values);
            on_both([&](auto& s) {
              const AdamOptions options = adam_options(step, true);
              const bool bytes = moments == DType::u8;
              adam(s, weights.on(s), grad.on(s), {m.on(s), bytes ? m_exponents.on(s) : View{}},
                   {v.on(s), bytes ? v_exponents.on(s) : View{}}, control.on(s), options, kChance);
            });
          }
          const auto what =
              fmt::format("{} grads {} moments {}", name_of_case(dtype, n), name_of(grad_type), name_of(moments));
          weights.expect_same_bits(what);
          m.expect_same_bits("m " + what);
          v.expect_same_bits("v " + what);
          m_exponents.expect_same_bits("exponents of m " + what);
          v_exponents.expect_same_bits("exponents of v " + what);
        }
}

TEST(CudaSgd, RoundsNarrowMomentumAsTheCpuDoes) {
  for (const auto n : {1L, 15L, 1000L, 70'001L})
    for (const std::int64_t shift : {0, 1}) {
      auto fp32 = Twin::random(DType::f32, {n}, 1), grad = Twin::random(DType::f32, {n}, 2);
      Twin b(TypedValues(DType::bf16, {n}), shift);
      auto control = control_of(0.37f);
      on_both([&](auto& s) {
        for (const bool first : {true, false})
          sgd(s, {fp32.on(s), {}}, grad.on(s), b.on(s), control.on(s),
              {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .first_step = first}, {{77}, 256});
      });
      fp32.expect_same_bits(name_of_case(DType::f32, n, shift));
      b.expect_same_bits("b " + name_of_case(DType::bf16, n, shift));
    }
}

TEST(CudaSgd, HasTheBitsOfTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const DType grad_type : kFloatTypes)
      for (const auto n : kSizes)
        for (const float momentum : {0.0f, 0.9f}) {
          auto fp32 = Twin::random(DType::f32, {n}, 1), grad = Twin::random(grad_type, {n}, 2);
          Twin b(TypedValues(DType::f32, {n}));
          auto control = control_of(0.37f);
          TwinWeights weights(dtype, n);
          on_both([&](auto& s) {
            write_master(s, fp32.on(s), weights.on(s));
            for (const bool first : {true, false})
              sgd(s, weights.on(s), grad.on(s), b.on(s), control.on(s),
                  {.lr = 0.1f, .momentum = momentum, .weight_decay = 0.01f, .first_step = first});
          });
          const auto what =
              fmt::format("{} grads {} momentum {}", name_of_case(dtype, n), name_of(grad_type), momentum);
          weights.expect_same_bits(what);
          b.expect_same_bits("b " + what);
        }
}

// Numbers of every size that a dtype has: from less than its least normal one, both zeros, up to 2^most.
TypedValues awkward(DType dtype, std::int64_t n, std::uint64_t seed, int most, bool positive = false) {
  TypedValues values(dtype, {n});
  const int least = dtype == DType::f16 ? -25 : -149;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto draw = philox({seed}, static_cast<std::uint64_t>(i));
    const int exponent = least + static_cast<int>(draw[0] % static_cast<std::uint32_t>(most - least));
    float value = std::ldexp(1 + static_cast<float>(draw[1] % (1u << 23)) * 0x1p-23f, exponent);
    if (draw[2] % 16 == 0) value = 0;
    values.set(i, !positive && draw[2] % 32 >= 16 ? -value : value);
  }
  return values;
}

TEST(CudaAdam, HasTheBitsOfTheCpuForNumbersOfEverySize) {
  constexpr std::int64_t kCount = 200'003;
  for (const DType dtype : kFloatTypes)
    for (const DType grad_type : {dtype, DType::f32})
      for (const DType moments : {DType::f32, DType::bf16, DType::u8})
        for (const bool decoupled : {true, false})
          for (const float factor : {0.37f, 1e-30f}) {
            const int most = dtype == DType::f16 ? 15 : 100;
            Twin fp32(awkward(DType::f32, kCount, 1, most)),
                grad(awkward(grad_type, kCount, 2, grad_type == DType::f16 ? 15 : 60));
            const bool bytes = moments == DType::u8;  // start from nothing
            Twin m(bytes ? TypedValues(moments, {kCount}) : awkward(moments, kCount, 3, 60));
            Twin v(bytes ? TypedValues(moments, {kCount}) : awkward(moments, kCount, 4, 120, true));
            const Shape blocks{(kCount + kMomentBlock - 1) / kMomentBlock};
            Twin m_exponents(TypedValues(DType::u8, blocks)), v_exponents(TypedValues(DType::u8, blocks));
            auto control = control_of(factor);
            TwinWeights weights(dtype, kCount);
            on_both([&](auto& s) {
              write_master(s, fp32.on(s), weights.on(s));
              for (int step = 1; step <= 2; ++step) {
                const AdamOptions options = adam_options(step, decoupled);
                adam(s, weights.on(s), grad.on(s), {m.on(s), bytes ? m_exponents.on(s) : View{}},
                     {v.on(s), bytes ? v_exponents.on(s) : View{}}, control.on(s), options, {{99}, 256});
              }
            });
            const auto what = fmt::format("{} grads {} moments {} {} factor {}", name_of_case(dtype, kCount),
                                          name_of(grad_type), name_of(moments), decoupled, factor);
            weights.expect_same_bits(what);
            m.expect_same_bits("m " + what);
            v.expect_same_bits("v " + what);
            m_exponents.expect_same_bits("exponents of m " + what);
            v_exponents.expect_same_bits("exponents of v " + what);
          }
}

TEST(CudaSgd, HasTheBitsOfTheCpuForNumbersOfEverySize) {
  constexpr std::int64_t kCount = 200'003;
  for (const DType dtype : kFloatTypes)
    for (const DType momentum : {DType::f32, DType::bf16})
      for (const float factor : {0.37f, 1e-30f}) {
        const int most = dtype == DType::f16 ? 15 : 100;
        Twin fp32(awkward(DType::f32, kCount, 1, most)), grad(awkward(DType::f32, kCount, 2, 60));
        Twin b(awkward(momentum, kCount, 3, 60));
        auto control = control_of(factor);
        TwinWeights weights(dtype, kCount);
        on_both([&](auto& s) {
          write_master(s, fp32.on(s), weights.on(s));
          for (const bool first : {false, true})
            sgd(s, weights.on(s), grad.on(s), b.on(s), control.on(s),
                {.lr = 0.1f, .momentum = 0.9f, .weight_decay = 0.01f, .first_step = first}, {{77}, 256});
        });
        const auto what =
            fmt::format("{} momentum {} factor {}", name_of_case(dtype, kCount), name_of(momentum), factor);
        weights.expect_same_bits(what);
        b.expect_same_bits("b " + what);
      }
}

TEST(CudaAdam, SkipsWhenControlSaysSo) {
  auto fp32 = Twin::random(DType::f32, {100}, 1), grad = Twin::random(DType::f32, {100}, 2);
  Twin m(TypedValues(DType::f32, {100})), v(TypedValues(DType::f32, {100}));
  auto control = control_of(1, 1);
  adam(gpu(), {fp32.on(gpu()), {}}, grad.on(gpu()), m.on(gpu()), v.on(gpu()), control.on(gpu()),
       {.lr = 1,
        .beta1 = 0.9f,
        .beta2 = 0.9f,
        .eps = 1e-8f,
        .weight_decay = 0,
        .correction1 = 1,
        .correction2 = 1,
        .decoupled = true});
  fp32.expect_same_bits("skipped weights");
  m.expect_same_bits("skipped m");
  v.expect_same_bits("skipped v");
}

TEST(CudaGradientNorm, HasTheBitsOfTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t n :
         {std::int64_t{1}, std::int64_t{63}, std::int64_t{70}, kNormBlock, 5 * kNormBlock + 1234})
      for (const std::int64_t shift : {0, 1}) {
        auto x = Twin::random(dtype, {n}, 1, 1, shift);
        const std::int64_t begin = shift * 3 * kNormLeaf;  // in the unit
        std::vector<std::int32_t> starts, entries;
        for_norm_nodes(begin, n, [&](std::int64_t block, std::uint32_t, int level) {
          if (static_cast<std::int64_t>(starts.size()) <= block)
            starts.push_back(static_cast<std::int32_t>(entries.size() / 2));
          entries.push_back(static_cast<std::int32_t>(entries.size() / 2));
          entries.push_back(level);
        });
        const auto count = static_cast<std::int64_t>(starts.size());
        starts.push_back(static_cast<std::int32_t>(entries.size() / 2));
        starts.insert(starts.end(), entries.begin(), entries.end());
        TypedValues values(DType::i32, {static_cast<std::int64_t>(starts.size())});
        std::memcpy(values.view().data, starts.data(), values.view().bytes());
        Twin table(values);
        Twin nodes(DType::f32, {norm_nodes(begin, n)}), partials(DType::f32, {count});
        Twin control(DType::f32, {3}), clipped(DType::f32, {3});
        on_both([&](auto& s) {
          sum_squares(s, x.on(s), begin, nodes.on(s));
          merge_norm_nodes(s, nodes.on(s), table.on(s), partials.on(s));
          finish_norm(s, partials.on(s), 8, 0, control.on(s));
          finish_norm(s, partials.on(s), 8, 0.01f, clipped.on(s));
        });
        nodes.expect_same_bits("sum_squares " + name_of_case(dtype, n, shift));
        partials.expect_same_bits("merge_norm_nodes " + name_of_case(dtype, n, shift));
        control.expect_same_bits("finish_norm " + name_of_case(dtype, n, shift));
        clipped.expect_same_bits("finish_norm, clipped " + name_of_case(dtype, n, shift));
      }
}

TEST(CudaGradientNorm, AnInfiniteSumSkipsTheStep) {
  auto sums = TypedValues::random(DType::f32, {2000}, 3);
  for (std::int64_t i = 0; i < sums.elements(); ++i) sums.set(i, std::abs(static_cast<float>(sums[i])));
  Twin good(sums);
  sums.set(1999, std::numeric_limits<float>::infinity());
  Twin bad(sums), control(DType::f32, {3}), skipped(DType::f32, {3});
  on_both([&](auto& s) {
    finish_norm(s, good.on(s), 1, 1, control.on(s));
    finish_norm(s, bad.on(s), 1, 1, skipped.on(s));
  });
  control.expect_same_bits("2000 partial sums");
  EXPECT_EQ(skipped.back()[2], 1);
}

}  // namespace
}  // namespace zeepo
