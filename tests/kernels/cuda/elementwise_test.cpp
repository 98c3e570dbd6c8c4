#include "zeepo/kernels/elementwise.h"

#include "tests/kernels/cuda/cuda_checks.h"

namespace zeepo {
namespace {

constexpr std::int64_t kSizes[] = {1, 7, 8, 17, 1000, 4096, 70001};

TEST(CudaElementwise, FillAddAndScaleHaveTheBitsOfTheCpu) {
  Threads cpu(2);
  for (const DType dtype : kFloatTypes)
    for (const auto n : kSizes)
      for (const std::int64_t shift : {0, 1}) {
        const std::string what = fmt::format("{} {} +{}", name_of(dtype), n, shift);
        const auto a = TypedValues::random(dtype, {n}, 1), b = TypedValues::random(dtype, {n}, 2);
        TypedValues expected(dtype, {n});
        const OnGpu on_a(a, shift), on_b(b), y(TypedValues(dtype, {n}), shift);
        add(cpu.stream, a.view(), b.view(), expected.view());
        add(gpu(), on_a.view(), on_b.view(), y.view());
        expect_same_bits(y.back(), expected, "add " + what);
        scale(cpu.stream, a.view(), 0.37f, expected.view());
        scale(gpu(), on_a.view(), 0.37f, y.view());
        expect_same_bits(y.back(), expected, "scale " + what);
        for (const float value : {0.0f, -0.3f}) {
          fill(cpu.stream, expected.view(), value);
          fill(gpu(), y.view(), value);
          expect_same_bits(y.back(), expected, "fill " + what);
        }
      }
}

}  // namespace
}  // namespace zeepo
