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
  for (const SummedTypes types : kSummedTypes)
    for (const auto [m, n, k] : kSizes)
      for (const Transpose a : {Transpose::no, Transpose::yes})
        for (const Transpose b : {Transpose::no, Transpose::yes})
          for (const Write write : {Write::overwrite, Write::add}) {
            const DType dtype = types.values;
            auto left = Twin::random(dtype, a == Transpose::yes ? Shape{k, m} : Shape{m, k}, 1);
            auto right = Twin::random(dtype, b == Transpose::yes ? Shape{n, k} : Shape{k, n}, 2);
            auto result = Twin::random(types.sums, {m, n}, 3), bias = Twin::random(dtype, {n}, 4);
            const bool with_bias = write == Write::overwrite && types.sums == dtype;
            on_both([&](auto& s) {
              matmul(s, left.on(s), right.on(s), result.on(s),
                     {.a = a, .b = b, .write = write, .bias = with_bias ? bias.on(s) : View{}});
            });
            const auto what = fmt::format("{} {}{}{}", name_of_case(dtype, m, n, k), a == Transpose::yes ? " aᵀ" : "",
                                          b == Transpose::yes ? " bᵀ" : "", write == Write::add ? " added" : "");
            // both sums have k roundings in fp32; in 16 bits the product may have been rounded before it is added to
            const double rounded =
                types.sums == DType::f32 ? 0 : rounding_of(dtype) * 5 * std::sqrt(static_cast<double>(k));
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

// The columns [first, first + count) of a matrix, as a view of its first row's part.
View columns(View x, std::int64_t first, std::int64_t count) {
  return {x.as<std::byte>() + static_cast<std::size_t>(first) * size_of(x.dtype), x.dtype, {x.shape.rows(), count}};
}

TEST(CudaMatmul, ReadsAndWritesColumnsOfWiderMatrices) {
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t first : {0, 16, 21})
      for (const std::int64_t n : {24, 33})
        for (const Transpose transposed : {Transpose::no, Transpose::yes})
          for (const Write write : {Write::overwrite, Write::add}) {
            const bool ta = transposed == Transpose::yes;
            auto wide = Twin::random(dtype, {48, 72}, 1), b = Twin::random(dtype, {ta ? 48 : 40, n}, 2);
            auto c = Twin::random(dtype, {ta ? 40 : 48, 64}, 3), bias = Twin::random(dtype, {n}, 4, 1, first);
            on_both([&](auto& s) {
              matmul(s, columns(wide.on(s), first, 40), b.on(s), columns(c.on(s), first, n),
                     {.a = transposed,
                      .write = write,
                      .bias = write == Write::add ? View{} : bias.on(s),
                      .a_stride = 72,
                      .c_stride = 64});
            });
            c.expect_near(dtype == DType::f32 ? 2e-6 : 1e-3, 16,
                          fmt::format("{} {} columns from {}{}", name_of(dtype), n, first, ta ? " aᵀ" : ""));
          }
}

TEST(CudaMatmul, AddsThePartsOfALongerK) {
  for (const DType dtype : kFloatTypes)
    for (const bool with_bias : {false, true})
      for (const Write write : {Write::overwrite, Write::add}) {
        if (with_bias && write == Write::add) continue;
        auto a = Twin::random(dtype, {19, 96}, 1), b = Twin::random(dtype, {96, 24}, 2);
        auto bias = Twin::random(dtype, {24}, 3), c = Twin::random(DType::f32, {19, 24}, 4);
        Twin open(DType::f32, {19, 24});
        on_both([&](auto& s) {
          for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 32}, {32, 37}, {37, 96}}) {
            View rows = b.on(s);
            rows.data = rows.template as<std::byte>() + static_cast<std::size_t>(begin * 24) * size_of(dtype);
            rows.shape = {end - begin, 24};
            matmul(s, columns(a.on(s), begin, end - begin), rows, c.on(s),
                   {.write = write,
                    .bias = with_bias ? bias.on(s) : View{},
                    .a_stride = 96,
                    .part = {.begin = begin, .whole = 96, .open = open.on(s)}});
          }
        });
        c.expect_near(2e-6, 16, fmt::format("{} {}", name_of(dtype), with_bias));
      }
}

TEST(CudaMatmul, RefusesAPartOutsideOfK) {
  auto a = Twin::random(DType::bf16, {4, 8}, 1), b = Twin::random(DType::bf16, {8, 4}, 2);
  Twin c(DType::f32, {4, 4}), open(DType::f32, {4, 4});
  const auto text = error_text([&] {
    matmul(gpu(), a.on(gpu()), b.on(gpu()), c.on(gpu()), {.part = {.begin = 4, .whole = 11, .open = open.on(gpu())}});
  });
  EXPECT_TRUE(names(text, "matmul", "[4, 12)", "k 11"));
}

// Sizes and shifts that cuBLASLt takes, and others.
TEST(CudaMatmul, TakesTheSlopeOfAnActivationAlong) {
  constexpr Size sizes[] = {{1, 8, 8}, {1, 256, 64}, {3, 5, 7}, {17, 64, 40}, {130, 72, 257}, {260, 512, 128}};
  for (const DType dtype : kFloatTypes)
    for (const auto [m, n, k] : sizes)
      for (const Activation f : {Activation::gelu_tanh, Activation::silu})
        for (const Transpose b : {Transpose::no, Transpose::yes})
          for (const std::int64_t shift : {0, 1}) {
            auto left = Twin::random(dtype, {m, k}, 1, 0.3f), before = Twin::random(dtype, {m, n}, 3, 2, shift);
            auto right = Twin::random(dtype, b == Transpose::yes ? Shape{n, k} : Shape{k, n}, 2, 0.3f);
            Twin result(dtype, {m, n});
            on_both([&](auto& s) {
              matmul_activate_backward(s, left.on(s), right.on(s), f, before.on(s), result.on(s), {.b = b});
            });
            result.expect_near(dtype == DType::f32 ? 3e-6 : rounding_of(dtype), 8,
                               fmt::format("{}, activation {}{}, {} off", name_of_case(dtype, m, n, k),
                                           static_cast<int>(f), b == Transpose::yes ? " bᵀ" : "", shift));
          }
}

TEST(CudaMatmul, TakesTheSlopeAlongWithTheSameBitsEveryTime) {
  auto a = Twin::random(DType::bf16, {64, 8192}, 1), b = Twin::random(DType::bf16, {64, 8192}, 2);
  auto before = Twin::random(DType::bf16, {64, 64}, 3);
  std::vector<std::byte> first;
  for (int turn = 0; turn < 5; ++turn) {
    Twin c(DType::bf16, {64, 64});
    matmul_activate_backward(gpu(), a.on(gpu()), b.on(gpu()), Activation::gelu_tanh, before.on(gpu()), c.on(gpu()),
                             {.b = Transpose::yes});
    if (turn == 0) first = c.back().bytes();
    EXPECT_TRUE(c.back().bytes() == first);
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
  for (const SummedTypes types : kSummedTypes)
    for (const auto& [rows, n] :
         {std::pair<std::int64_t, std::int64_t>{1, 1}, {7, 5}, {1000, 264}, {3, 2048}, {70, 1031}})
      for (const Write write : {Write::overwrite, Write::add}) {
        auto x = Twin::random(types.values, {rows, n}, 1), sums = Twin::random(types.sums, {n}, 2);
        on_both([&](auto& s) { sum_rows(s, x.on(s), sums.on(s), write); });
        sums.expect_near(2e-6, std::sqrt(static_cast<double>(rows)), "sum_rows " + name_of_case(types.values, rows, n));
      }
}

}  // namespace
}  // namespace zeepo
