#include "zeepo/kernels/matmul.h"

#include "tests/kernels/cuda/cuda_checks.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

struct Size {
  std::int64_t m, n, k;
};
constexpr Size kSizes[] = {{1, 1, 1},      {3, 5, 7},       {1, 64, 128},    {17, 33, 65},
                           {128, 256, 64}, {64, 1000, 321}, {513, 128, 2048}};

TEST(CudaMatmul, IsNearTheCpusInEveryLayout) {
  for (const DType dtype : kFloatTypes)
    for (const auto [m, n, k] : kSizes)
      for (const Transpose a : {Transpose::no, Transpose::yes})
        for (const Transpose b : {Transpose::no, Transpose::yes})
          for (const Write write : {Write::overwrite, Write::add}) {
            auto left = Twin::random(dtype, a == Transpose::yes ? Shape{k, m} : Shape{m, k}, 1);
            auto right = Twin::random(dtype, b == Transpose::yes ? Shape{n, k} : Shape{k, n}, 2);
            auto result = Twin::random(dtype, {m, n}, 3), bias = Twin::random(dtype, {n}, 4);
            on_both([&](auto& s) {
              matmul(s, left.on(s), right.on(s), result.on(s),
                     {.a = a, .b = b, .write = write, .bias = write == Write::add ? View{} : bias.on(s)});
            });
            const auto what = fmt::format("{} {}{}{}", name_of_case(dtype, m, n, k), a == Transpose::yes ? " aᵀ" : "",
                                          b == Transpose::yes ? " bᵀ" : "", write == Write::add ? " added" : "");
            // both sums have k roundings in fp32; in 16 bits the product may have been rounded before it is added to
            const double rounded = dtype == DType::f32 ? 0 : rounding_of(dtype) * 5 * std::sqrt(static_cast<double>(k));
            result.expect_near(3e-7, static_cast<double>(k) + rounded / 3e-7, what);
          }
}

TEST(CudaMatmul, FoldsLeadingExtentsAndTakesUnalignedOperands) {
  for (const DType dtype : kFloatTypes) {
    auto x = Twin::random(dtype, {2, 9, 40}, 1, 1, 1), weight = Twin::random(dtype, {24, 40}, 2, 1, 3);
    Twin y(dtype, {2, 9, 24}, 1);
    on_both([&](auto& s) { matmul(s, x.on(s), weight.on(s), y.on(s), {.b = Transpose::yes}); });
    y.expect_near(2e-6, 6, std::string(name_of(dtype)));
  }
}

TEST(CudaMatmul, GivesTheSameBitsEveryTime) {
  auto a = Twin::random(DType::bf16, {64, 8192}, 1), b = Twin::random(DType::bf16, {64, 8192}, 2);
  std::vector<std::byte> first;
  for (int turn = 0; turn < 5; ++turn) {
    Twin c(DType::bf16, {64, 64});
    matmul(gpu(), a.on(gpu()), b.on(gpu()), c.on(gpu()), {.b = Transpose::yes});
    if (turn == 0) first = c.back().bytes();
    EXPECT_TRUE(c.back().bytes() == first);
  }
}

TEST(CudaMatmul, RefusesWhatDoesNotFit) {
  auto a = Twin::random(DType::bf16, {4, 8}, 1), b = Twin::random(DType::bf16, {9, 4}, 2);
  Twin c(DType::bf16, {4, 4});
  EXPECT_TRUE(
      names(error_text([&] { matmul(gpu(), a.on(gpu()), b.on(gpu()), c.on(gpu())); }), "matmul", "(4, 8)", "(9, 4)"));
}

TEST(CudaSumRows, IsNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, n] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 5}, {1000, 264}, {3, 2048}, {70, 1031}})
      for (const Write write : {Write::overwrite, Write::add}) {
        auto x = Twin::random(dtype, {rows, n}, 1), sums = Twin::random(dtype, {n}, 2);
        on_both([&](auto& s) { sum_rows(s, x.on(s), sums.on(s), write); });
        sums.expect_near(2e-6, std::sqrt(static_cast<double>(rows)), "sum_rows " + name_of_case(dtype, rows, n));
      }
}

}  // namespace
}  // namespace zeepo
