#include "zeepo/kernels/fp8.h"

#include <limits>
#include <vector>

#include "tests/kernels/cuda/cuda_checks.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr DType kHalves[] = {DType::bf16, DType::f16};

// e4m3: 1 sign, 4 exponent (bias 7), 3 mantissa; all ones but the sign is NaN.
float decoded(std::uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  if ((bits & 127) == 127) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 128 ? -magnitude : magnitude;
}

// A quantised matrix and what it holds, in floats.
struct Quantised {
  Twin pairs, factor{DType::f32, {2}};
  std::int64_t rows, k;

  Quantised(std::int64_t rows_, std::int64_t k_) : pairs(DType::i16, {rows_, k_ / 2}), rows(rows_), k(k_) {}
  Fp8Matrix matrix() { return {pairs.on(gpu()), factor.on(gpu())}; }
  float scale() const { return factor.back()[0]; }
  std::vector<float> units() const {  // without the factor
    const TypedValues values = pairs.back();
    std::vector<float> made;
    for (const std::byte b : values.bytes()) made.push_back(decoded(static_cast<std::uint8_t>(b)));
    return made;
  }
};

TEST(CudaFp8, QuantisesToTheNearest) {
  for (const DType dtype : kHalves)
    for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{1, 16}, {48, 80}, {272, 1040}})
      for (const Transpose transpose : {Transpose::no, Transpose::yes}) {
        const bool turned = transpose == Transpose::yes;
        if (turned && rows % kFp8Multiple != 0) continue;
        const auto x = Twin::random(dtype, {rows, columns}, 1, 3);
        Quantised q(turned ? columns : rows, turned ? rows : columns);
        quantise(gpu(), x.view(), transpose, q.matrix());
        double largest = 0;
        for (std::int64_t i = 0; i < rows * columns; ++i)
          largest = std::max(largest, std::abs(static_cast<double>(x.cpu()[i])));
        ASSERT_EQ(q.scale(), static_cast<float>(largest) / 448);
        const auto units = q.units();
        for (std::int64_t i = 0; i < rows * columns; ++i) {
          const std::int64_t at = turned ? i % columns * rows + i / columns : i;
          const double exact = static_cast<double>(x.cpu()[i]) / q.scale();
          const double half_step = std::max(std::abs(exact) / 16, std::ldexp(1.0, -10)) * (1 + 1e-5);
          ASSERT_NEAR(units[static_cast<std::size_t>(at)], exact, half_step) << rows << " " << columns << " " << i;
        }
      }
}

TEST(CudaFp8, ProductsAreThoseOfWhatWasQuantised) {
  for (const DType dtype : kHalves)
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{3, 16, 32}, {130, 48, 272}, {64, 96, 528}})
      for (const Write write : {Write::overwrite, Write::add})
        for (const bool short_sums : {false, true}) {
          const auto a = Twin::random(dtype, {m, k}, 1), b = Twin::random(dtype, {n, k}, 2),
                     bias = Twin::random(dtype, {n}, 3), c = Twin::random(dtype, {m, n}, 4);
          Quantised qa(m, k), qb(n, k);
          quantise(gpu(), a.view(), Transpose::no, qa.matrix());
          quantise(gpu(), b.view(), Transpose::no, qb.matrix());
          const bool add = write == Write::add;
          matmul_fp8(gpu(), qa.matrix(), qb.matrix(), c.view(),
                     {.write = write, .bias = add ? ConstView{} : bias.view(), .short_sums = short_sums});
          const auto left = qa.units(), right = qb.units();
          const double factor = static_cast<double>(qa.scale()) * qb.scale();
          const TypedValues got = c.back();
          // short sums have 14 bits; a 16-bit result is rounded, the product perhaps before it is added to
          const double slack = (short_sums ? std::ldexp(1.0, -11) : 1e-6) + 2 * rounding_of(dtype);
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
              double sum = 0, size = 0;
              for (std::int64_t l = 0; l < k; ++l) {
                const double term =
                    double{left[static_cast<std::size_t>(i * k + l)]} * right[static_cast<std::size_t>(j * k + l)];
                sum += term;
                size += std::abs(term);
              }
              const double before = add ? c.cpu()[i * n + j] : bias.cpu()[j];
              ASSERT_NEAR(got[i * n + j], sum * factor + before, slack * (size * factor + std::abs(before)))
                  << m << " " << n << " " << k << ": " << i << " " << j;
            }
        }
}

TEST(CudaFp8, ZerosStayZeroAndNanMakesTheProductNan) {
  for (const float value : {0.0f, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TypedValues values(DType::bf16, {16, 16});
    for (std::int64_t i = 0; i < 256; ++i) values.view().as<bf16>()[i] = from_float<bf16>(i == 7 ? value : 0.0f);
    const Twin x(std::move(values)), ones = Twin::random(DType::bf16, {16, 16}, 2), c(DType::bf16, {16, 16});
    Quantised qx(16, 16), q_ones(16, 16);
    quantise(gpu(), x.view(), Transpose::no, qx.matrix());
    quantise(gpu(), ones.view(), Transpose::no, q_ones.matrix());
    matmul_fp8(gpu(), qx.matrix(), q_ones.matrix(), c.view(), {});
    const TypedValues got = c.back();
    for (std::int64_t i = 0; i < 256; ++i) EXPECT_TRUE(value == 0 ? got[i] == 0 : std::isnan(got[i])) << value << i;
  }
}

TEST(CudaFp8, RefusesWhatDoesNotFit) {
  const auto x = Twin::random(DType::bf16, {16, 24}, 1);
  Quantised odd(16, 24), narrow(16, 16);
  EXPECT_TRUE(names(error_text([&] { quantise(gpu(), x.view(), Transpose::no, odd.matrix()); }), "(16, 24)", "16"));
  Quantised wide(16, 32);
  const Twin c(DType::bf16, {16, 16}), fp32(DType::f32, {16, 16});
  EXPECT_TRUE(names(error_text([&] { matmul_fp8(gpu(), narrow.matrix(), wide.matrix(), c.view(), {}); }), "(16, 8)",
                    "(16, 16)"));
  EXPECT_TRUE(names(error_text([&] { matmul_fp8(gpu(), wide.matrix(), wide.matrix(), fp32.view(), {}); }), "fp32"));
}

}  // namespace
}  // namespace zeepo
