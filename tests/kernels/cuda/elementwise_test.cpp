#include "zeepo/kernels/elementwise.h"

#include "tests/kernels/cuda/cuda_checks.h"

namespace zeepo {
namespace {

constexpr std::int64_t kSizes[] = {1, 7, 8, 17, 1000, 4096, 70001};

TEST(CudaElementwise, FillAddAndScaleHaveTheBitsOfTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const auto n : kSizes)
      for (const std::int64_t shift : {0, 1}) {
        const auto what = name_of_case(dtype, n, shift);
        auto a = Twin::random(dtype, {n}, 1, 1, shift), b = Twin::random(dtype, {n}, 2);
        auto factor = Twin::random(DType::f32, {1}, 3);
        Twin sum(dtype, {n}, shift), product(dtype, {n}), zeros(dtype, {n}), filled(dtype, {n}), by_factor(dtype, {n});
        on_both([&](auto& s) {
          add(s, a.on(s), b.on(s), sum.on(s));
          scale(s, a.on(s), 0.37f, product.on(s));
          scale_by(s, a.on(s), factor.on(s), by_factor.on(s));
          fill(s, zeros.on(s), 0);
          fill(s, filled.on(s), -0.3f);
          add(s, a.on(s), b.on(s), a.on(s));
        });
        sum.expect_same_bits("add " + what);
        product.expect_same_bits("scale " + what);
        by_factor.expect_same_bits("scale_by " + what);
        zeros.expect_same_bits("fill " + what);
        filled.expect_same_bits("fill " + what);
        a.expect_same_bits("add in place " + what);
      }
}

TEST(CudaElementwise, AddTakesAnAddendOfAnyType) {
  for (const DType dtype : kFloatTypes)
    for (const DType other : kFloatTypes) {
      auto a = Twin::random(dtype, {1003}, 1), b = Twin::random(other, {1003}, 2);
      on_both([&](auto& s) { add(s, a.on(s), b.on(s), a.on(s)); });
      a.expect_same_bits(fmt::format("{} += {}", name_of(dtype), name_of(other)));
    }
}

// Every high half with low halves around the ties of bf16 and fp16: subnormal numbers, infinities and NaN among them.
TEST(CudaElementwise, CopyConvertsEveryPatternAsTheCpuDoes) {
  std::vector<float> patterns;
  for (std::uint32_t high = 0; high < 0x10000; ++high)
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u,
                                    0x8001u, 0xefffu, 0xf000u, 0xf001u, 0xffffu})
      patterns.push_back(std::bit_cast<float>(high << 16 | low));
  const Shape shape{static_cast<std::int64_t>(patterns.size())};
  TypedValues values(DType::f32, shape);
  std::memcpy(values.view().data, patterns.data(), patterns.size() * sizeof(float));
  Twin x(values);
  for (const DType dtype : kFloatTypes) {
    Twin narrow(dtype, shape), wide(DType::f32, shape);
    on_both([&](auto& s) {
      copy(s, x.on(s), narrow.on(s));
      copy(s, narrow.on(s), wide.on(s));
    });
    narrow.expect_same_numbers(fmt::format("to {}", name_of(dtype)));
    wide.expect_same_numbers(fmt::format("from {}", name_of(dtype)));
  }
  auto halves = Twin::random(DType::bf16, {5001}, 1, 1, 3);
  Twin others(DType::f16, {5001});
  on_both([&](auto& s) { copy(s, halves.on(s), others.on(s)); });
  others.expect_same_bits("bf16 to fp16");
}

TEST(CudaElementwise, ActivationsAndTheirGradientsAreNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const Activation f : {Activation::gelu_tanh, Activation::gelu_erf, Activation::relu, Activation::silu})
      for (const auto n : kSizes) {
        auto x = Twin::random(dtype, {n}, 1, 5), dy = Twin::random(dtype, {n}, 2);
        Twin y(dtype, {n}), dx(dtype, {n});
        on_both([&](auto& s) {
          activate(s, f, x.on(s), y.on(s));
          activate_backward(s, f, x.on(s), dy.on(s), dx.on(s));
        });
        const auto what = name_of_case(dtype, n, static_cast<int>(f));
        y.expect_near(1e-6, 1e-1, "activate " + what);
        dx.expect_near(1e-6, 1, "activate_backward " + what);
      }
}

TEST(CudaElementwise, SwigluAndItsGradientAreNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t n : {1, 8, 13, 264, 2056})
      for (const std::int64_t shift : {0, 1}) {
        auto x = Twin::random(dtype, {3, 5, 2 * n}, 1, 4, shift), dy = Twin::random(dtype, {3, 5, n}, 2);
        Twin y(dtype, {3, 5, n}), dx(dtype, {3, 5, 2 * n});
        on_both([&](auto& s) {
          swiglu(s, x.on(s), y.on(s));
          swiglu_backward(s, x.on(s), dy.on(s), dx.on(s));
        });
        y.expect_near(2e-6, 1e-1, "swiglu " + name_of_case(dtype, n, shift));
        dx.expect_near(2e-6, 10, "swiglu_backward " + name_of_case(dtype, n, shift));
      }
}

TEST(CudaElementwise, DropoutDropsWhatTheCpuDrops) {
  for (const DType dtype : kFloatTypes)
    for (const auto n : kSizes)
      for (const std::int64_t shift : {0, 1}) {
        auto x = Twin::random(dtype, {n}, 1, 1, shift);
        Twin y(dtype, {n});
        on_both([&](auto& s) { dropout(s, x.on(s), 0.3f, mix({7}, "dropout"), y.on(s)); });
        y.expect_same_bits("dropout " + name_of_case(dtype, n, shift));
      }
}

}  // namespace
}  // namespace zeepo
