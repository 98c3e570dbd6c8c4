#include "zeepo/kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/kernel_checks.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

struct MatmulCase {
  std::int64_t m, n, k;
  Transpose a, b;
};

std::vector<MatmulCase> cases() {
  const std::int64_t extents[][3] = {{1, 1, 1},    {1, 70, 37},    {2, 129, 64},  {3, 33, 100}, {5, 65, 1},
                                     {8, 200, 31}, {9, 7, 5},      {17, 33, 65},  {64, 64, 64}, {100, 300, 50},
                                     {257, 19, 8}, {300, 530, 70}, {13, 40, 2100}};
  std::vector<MatmulCase> all;
  for (const auto& [m, n, k] : extents)
    for (const Transpose a : {Transpose::no, Transpose::yes})
      for (const Transpose b : {Transpose::no, Transpose::yes}) all.push_back({m, n, k, a, b});
  return all;
}

Shape stored(std::int64_t rows, std::int64_t columns, Transpose transpose) {
  return transpose == Transpose::yes ? Shape{columns, rows} : Shape{rows, columns};
}

// The product in double precision, and the sum of the magnitudes that error bounds scale with.
struct Exact {
  std::vector<double> sums, magnitudes;
};
Exact exact(const MatmulCase& t, const TypedValues& a, const TypedValues& b) {
  Exact result;
  for (std::int64_t i = 0; i < t.m; ++i) {
    for (std::int64_t j = 0; j < t.n; ++j) {
      double sum = 0, magnitude = 0;
      for (std::int64_t p = 0; p < t.k; ++p) {
        const double x = a[t.a == Transpose::yes ? p * t.m + i : i * t.k + p];
        const double y = b[t.b == Transpose::yes ? j * t.k + p : p * t.n + j];
        sum += x * y;
        magnitude += std::abs(x * y);
      }
      result.sums.push_back(sum);
      result.magnitudes.push_back(magnitude);
    }
  }
  return result;
}

TEST(Matmul, MatchesDoublesForEveryShapeAndType) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  for (const DType dtype : kFloatTypes) {
    for (const MatmulCase& t : cases()) {
      const auto a = TypedValues::random(dtype, stored(t.m, t.k, t.a), 1);
      const auto b = TypedValues::random(dtype, stored(t.k, t.n, t.b), 2);
      const auto bias = TypedValues::random(dtype, {t.n}, 3);
      const auto before = TypedValues::random(dtype, {t.m, t.n}, 4);
      const Exact expected = exact(t, a, b);
      for (const int variant : {0, 1, 2}) {  // plain, bias, added
        TypedValues c = before;
        MatmulOptions options{.a = t.a, .b = t.b};
        if (variant == 1) options.bias = bias.view();
        if (variant == 2) options.write = Write::add;
        matmul(stream, a.view(), b.view(), c.view(), options);
        for (std::int64_t i = 0; i < t.m * t.n; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const double extra = variant == 1 ? bias[i % t.n] : variant == 2 ? before[i] : 0;
          const double sum = expected.sums[at] + extra;
          const double limit =
              1.01 * rounding_of(dtype) * std::abs(sum) + 4e-7 * (expected.magnitudes[at] + std::abs(extra)) + 1e-7;
          ASSERT_NEAR(c[i], sum, limit) << name_of(dtype) << " " << t.m << "x" << t.n << "x" << t.k << " element " << i
                                        << " variant " << variant;
        }
      }
    }
  }
}

TEST(Matmul, GivesTheSameBitsForAnyThreadCount) {
  for (const DType dtype : kFloatTypes) {
    for (const MatmulCase& t : std::vector<MatmulCase>{{1, 300, 100, Transpose::no, Transpose::yes},
                                                       {300, 700, 129, Transpose::no, Transpose::yes},
                                                       {515, 300, 77, Transpose::yes, Transpose::no}}) {
      const auto a = TypedValues::random(dtype, stored(t.m, t.k, t.a), 1);
      const auto b = TypedValues::random(dtype, stored(t.k, t.n, t.b), 2);
      std::vector<std::byte> first;
      for (const int threads : {1, 2, 3, 7}) {
        ThreadPool pool(threads);
        CpuStream stream(pool);
        TypedValues c(dtype, {t.m, t.n});
        matmul(stream, a.view(), b.view(), c.view(), {.a = t.a, .b = t.b});
        if (first.empty()) first = c.bytes();
        EXPECT_EQ(c.bytes(), first) << name_of(dtype) << " " << t.m << " rows, " << threads << " threads";
      }
    }
  }
}

// Such a k is done in two chunks, the second of which is the shorter.
TEST(Matmul, Rounds16BitResultsOnceAfterAllOfALongK) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  constexpr std::int64_t kM = 13, kN = 2048, kK = 3000;
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto a = TypedValues::random(dtype, {kM, kK}, 1), b = TypedValues::random(dtype, {kK, kN}, 2);
    TypedValues wide_a(DType::f32, {kM, kK}), wide_b(DType::f32, {kK, kN});
    for (std::int64_t i = 0; i < a.elements(); ++i) wide_a.set(i, static_cast<float>(a[i]));
    for (std::int64_t i = 0; i < b.elements(); ++i) wide_b.set(i, static_cast<float>(b[i]));
    TypedValues wide(DType::f32, {kM, kN}), expected(dtype, {kM, kN}), c(dtype, {kM, kN});
    matmul(stream, wide_a.view(), wide_b.view(), wide.view());
    for (std::int64_t i = 0; i < wide.elements(); ++i) expected.set(i, static_cast<float>(wide[i]));
    matmul(stream, a.view(), b.view(), c.view());
    EXPECT_TRUE(c.bytes() == expected.bytes()) << name_of(dtype);
  }
}

// Wide enough that k is done in chunks, the last of them shorter: a Llama's down projection is such a product.
TEST(Matmul, AddsUpChunksOfDifferentDepth) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  constexpr std::int64_t m = 13, n = 4100, k = 2051;
  for (const DType dtype : kFloatTypes) {
    TypedValues a(dtype, {m, k}), b(dtype, {k, n}), c(dtype, {m, n});
    for (auto* ones : {&a, &b})
      for (std::int64_t i = 0; i < ones->elements(); ++i) ones->set(i, 1);
    matmul(stream, a.view(), b.view(), c.view());
    for (std::int64_t i = 0; i < m * n; ++i)
      ASSERT_NEAR(c[i], k, k * rounding_of(dtype)) << name_of(dtype) << " element " << i;
  }
}

// Columns of a wider matrix, as the tiles of a linear layer use them.
TEST(Matmul, WorksOnColumnsOfWiderMatrices) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  constexpr std::int64_t n = 45, k = 70, a_first = 3, a_width = 210, c_first = 11, c_width = 80;
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t m : {5, 33})
      for (const Transpose turn : {Transpose::no, Transpose::yes}) {
        const Shape shape = stored(m, k, turn);
        const auto wide_a = TypedValues::random(dtype, {shape[0], a_width}, 1);
        const auto b = TypedValues::random(dtype, {k, n}, 2);
        TypedValues a(dtype, shape), c(dtype, {m, n}), wide_c(dtype, {m, c_width});
        for (std::int64_t i = 0; i < shape[0]; ++i)
          for (std::int64_t j = 0; j < shape[1]; ++j)
            a.set(i * shape[1] + j, static_cast<float>(wide_a[i * a_width + a_first + j]));
        for (std::int64_t i = 0; i < wide_c.elements(); ++i) wide_c.set(i, -7);
        const auto from = [](auto view, std::int64_t first, Shape part) {
          using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>, const std::byte,
                                          std::byte>;
          view.data = static_cast<Byte*>(view.data) + static_cast<std::size_t>(first) * size_of(view.dtype);
          view.shape = part;
          return view;
        };
        matmul(stream, a.view(), b.view(), c.view(), {.a = turn});
        matmul(stream, from(wide_a.view(), a_first, shape), b.view(), from(wide_c.view(), c_first, {m, n}),
               {.a = turn, .a_stride = a_width, .c_stride = c_width});
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < c_width; ++j) {
            const bool inside = j >= c_first && j < c_first + n;
            ASSERT_EQ(wide_c[i * c_width + j], inside ? c[i * n + j - c_first] : -7)
                << name_of(dtype) << " " << m << " rows, row " << i << " column " << j;
          }
      }
}

// A product whose k comes in parts, wherever they are cut, has the bits of the whole one.
TEST(Matmul, GoesOnWhereThePartBeforeItEnded) {
  ThreadPool pool(2);
  CpuStream stream(pool);
  constexpr std::int64_t n = 75, k = 2500;  // three pieces of k: 834, 834, 832
  for (const auto& [dtype, m] : {std::pair<DType, std::int64_t>{DType::f32, 40},
                                 {DType::bf16, 40},
                                 {DType::f16, 40},
                                 {DType::f32, 1},
                                 {DType::bf16, 3},
                                 {DType::f16, 8}}) {
    const auto a = TypedValues::random(dtype, {m, k}, 1), b = TypedValues::random(dtype, {k, n}, 2);
    const auto bias = TypedValues::random(dtype, {n}, 3);
    const auto before = TypedValues::random(DType::f32, {m, n}, 4);
    for (const std::vector<std::int64_t>& ends :
         {std::vector<std::int64_t>{k}, {834, k}, {834, 1668, k}, {1, 2, k}, {400, 800, 900, 2499, k}, {2000, k}})
      for (const int variant : {0, 1, 2}) {  // plain, bias, added
        MatmulOptions options;
        if (variant == 1) options.bias = bias.view();
        if (variant == 2) options.write = Write::add;
        TypedValues whole = before, parts = before, open(DType::f32, {m, n});
        matmul(stream, a.view(), b.view(), whole.view(), options);
        std::int64_t begin = 0;
        for (const std::int64_t end : ends) {
          ConstView a_part = a.view(), b_part = b.view();
          a_part.data = static_cast<const std::byte*>(a_part.data) + static_cast<std::size_t>(begin) * size_of(dtype);
          a_part.shape = {m, end - begin};
          b_part.data =
              static_cast<const std::byte*>(b_part.data) + static_cast<std::size_t>(begin * n) * size_of(dtype);
          b_part.shape = {end - begin, n};
          options.a_stride = k;
          options.part = {.begin = begin, .whole = k, .open = open.view()};
          matmul(stream, a_part, b_part, parts.view(), options);
          begin = end;
        }
        EXPECT_EQ(parts.bytes(), whole.bytes()) << name_of(dtype) << ", " << m << " rows, variant " << variant << ", "
                                                << ends.size() << " parts, the first of " << ends[0];
      }
  }
}

TEST(Matmul, FoldsLeadingExtentsIntoRows) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  const auto x = TypedValues::random(DType::f32, {2, 5, 3}, 1), w = TypedValues::random(DType::f32, {4, 3}, 2);
  TypedValues folded(DType::f32, {2, 5, 4}), flat(DType::f32, {10, 4});
  matmul(stream, x.view(), w.view(), folded.view(), {.b = Transpose::yes});
  ConstView rows = x.view();
  rows.shape = {10, 3};
  matmul(stream, rows, w.view(), flat.view(), {.b = Transpose::yes});
  EXPECT_EQ(folded.bytes(), flat.bytes());
}

TEST(Matmul, RefusesShapesAndTypesThatDoNotFit) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  TypedValues a(DType::f32, {2, 3}), b(DType::f32, {3, 4}), half(DType::bf16, {3, 4}), c(DType::f32, {2, 4});
  TypedValues wide(DType::f32, {2, 5}), bias(DType::f32, {4});
  EXPECT_NO_THROW(matmul(stream, a.view(), b.view(), c.view()));
  EXPECT_THROW(matmul(stream, a.view(), b.view(), wide.view()), Error);
  EXPECT_THROW(matmul(stream, a.view(), b.view(), c.view(), {.b = Transpose::yes}), Error);
  EXPECT_THROW(matmul(stream, a.view(), half.view(), c.view()), Error);
  EXPECT_THROW(matmul(stream, a.view(), b.view(), c.view(), {.write = Write::add, .bias = bias.view()}), Error);
}

TEST(MatmulActivateBackward, IsTheProductTimesTheSlope) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const Activation f : {Activation::gelu_tanh, Activation::relu}) {
      const auto a = TypedValues::random(dtype, {2, 5, 19}, 1), b = TypedValues::random(dtype, {12, 19}, 2);
      const auto before = TypedValues::random(dtype, {2, 5, 12}, 3);
      TypedValues c(dtype, {2, 5, 12}), expected(dtype, {2, 5, 12});
      matmul_activate_backward(threads.stream, a.view(), b.view(), f, before.view(), c.view(), {.b = Transpose::yes});
      matmul(threads.stream, a.view(), b.view(), expected.view(), {.b = Transpose::yes});
      activate_backward(threads.stream, f, before.view(), expected.view(), expected.view());
      EXPECT_EQ(c.bytes(), expected.bytes()) << name_of(dtype);
    }
}

TEST(MatmulActivateBackward, RefusesWhatDoesNotFit) {
  Threads threads(1);
  const auto refuses = [&](View before, View c, const MatmulOptions& options) {
    TypedValues a(DType::f32, {2, 3}), b(DType::f32, {3, 4});
    EXPECT_THROW(matmul_activate_backward(threads.stream, a.view(), b.view(), Activation::relu, before, c, options),
                 Error);
  };
  TypedValues c(DType::f32, {2, 4}), wide(DType::f32, {2, 5}), half(DType::bf16, {2, 4}), bias(DType::f32, {4});
  refuses(wide.view(), c.view(), {});
  refuses(half.view(), c.view(), {});
  refuses(half.view(), half.view(), {});
  refuses(c.view(), c.view(), {.write = Write::add});
  refuses(c.view(), c.view(), {.bias = bias.view()});
}

TEST(SumRows, MatchesDoublesAndAddsInPlace) {
  for (const SummedTypes types : kSummedTypes) {
    for (const auto& [rows, n] : {std::pair{1, 1}, {3, 17}, {200, 300}, {1025, 33}}) {
      const auto x = TypedValues::random(types.values, {rows, n}, 5);
      const auto before = TypedValues::random(types.sums, {n}, 6);
      std::vector<std::byte> first;
      for (const int threads : {1, 3}) {
        ThreadPool pool(threads);
        CpuStream stream(pool);
        for (const Write write : {Write::overwrite, Write::add}) {
          TypedValues sums = before;
          sum_rows(stream, x.view(), sums.view(), write);
          for (std::int64_t j = 0; j < n; ++j) {
            double expected = write == Write::add ? before[j] : 0, magnitude = std::abs(expected);
            for (std::int64_t i = 0; i < rows; ++i) {
              expected += x[i * n + j];
              magnitude += std::abs(x[i * n + j]);
            }
            ASSERT_NEAR(sums[j], expected, 1.01 * rounding_of(types.sums) * std::abs(expected) + 4e-7 * magnitude);
          }
          if (write == Write::overwrite && first.empty()) first = sums.bytes();
          if (write == Write::overwrite) {
            EXPECT_EQ(sums.bytes(), first);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace zeepo
