#include "zeepo/base/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

// The number that 16 bits with these field widths stand for, by the definition of the format.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int sign = bits >> 15, exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1), bias = (1 << (exponent_bits - 1)) - 1;
  double value = 0;
  if (exponent == (1 << exponent_bits) - 1)
    value = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    value = std::ldexp(mantissa, 1 - bias - mantissa_bits);
  else
    value = std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  return sign ? -value : value;
}

template <class T>
struct Format;
template <>
struct Format<bf16> {
  static constexpr int exponent = 8, mantissa = 7;
};
template <>
struct Format<f16> {
  static constexpr int exponent = 5, mantissa = 10;
};

template <class T>
class Halves : public testing::Test {};
using HalfTypes = testing::Types<bf16, f16>;
TYPED_TEST_SUITE(Halves, HalfTypes);

TYPED_TEST(Halves, WidenToTheirValueAndComeBack) {
  using F = Format<TypeParam>;
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const TypeParam half{static_cast<std::uint16_t>(i)};
    const double expected = value_of(half.bits, F::exponent, F::mantissa);
    const float wide = to_float(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide)) << std::hex << i;
      ASSERT_TRUE(std::isnan(to_float(from_float<TypeParam>(wide)))) << std::hex << i;
    } else {
      ASSERT_EQ(double{wide}, expected) << std::hex << i;
      ASSERT_EQ(std::signbit(wide), std::signbit(expected)) << std::hex << i;
      ASSERT_EQ(from_float<TypeParam>(wide).bits, half.bits) << std::hex << i;
    }
  }
}

// Between neighbours: the middle goes to the even one, everything else to the nearer one.
TYPED_TEST(Halves, RoundToNearestTiesToEven) {
  for (std::uint32_t sign : {0u, 0x8000u})
    for (std::uint32_t i = 0;; ++i) {
      const TypeParam low{static_cast<std::uint16_t>(sign | i)}, high{static_cast<std::uint16_t>(sign | (i + 1))};
      if (!std::isfinite(to_float(high))) break;
      const double middle = (double{to_float(low)} + double{to_float(high)}) / 2;
      const auto tie = static_cast<float>(middle);
      ASSERT_EQ(double{tie}, middle) << "fp32 holds every tie";
      const auto even = (i & 1u) ? high : low;
      ASSERT_EQ(from_float<TypeParam>(tie).bits, even.bits) << std::hex << low.bits;
      ASSERT_EQ(from_float<TypeParam>(std::nextafter(tie, to_float(low))).bits, low.bits) << std::hex << low.bits;
      ASSERT_EQ(from_float<TypeParam>(std::nextafter(tie, to_float(high))).bits, high.bits) << std::hex << low.bits;
    }
}

TYPED_TEST(Halves, OverflowToInfinityPastTheLastTie) {
  using F = Format<TypeParam>;
  const auto infinity = static_cast<std::uint16_t>(((1 << F::exponent) - 1) << F::mantissa);
  const TypeParam largest{static_cast<std::uint16_t>(infinity - 1)};
  const TypeParam below{static_cast<std::uint16_t>(infinity - 2)};
  const double step = double{to_float(largest)} - double{to_float(below)};
  const auto tie = static_cast<float>(double{to_float(largest)} + step / 2);
  EXPECT_EQ(from_float<TypeParam>(tie).bits, infinity);
  EXPECT_EQ(from_float<TypeParam>(-tie).bits, infinity | 0x8000);
  EXPECT_EQ(from_float<TypeParam>(std::nextafter(tie, 0.0f)).bits, largest.bits);
  EXPECT_EQ(from_float<TypeParam>(std::numeric_limits<float>::infinity()).bits, infinity);
  EXPECT_EQ(from_float<TypeParam>(std::numeric_limits<float>::denorm_min()).bits, 0);
}

// Every magnitude that rounds to infinity, and none below it.
TYPED_TEST(Halves, FirstPastFindsWhatBecomesInfinite) {
  constexpr DType dtype = dtype_of<TypeParam>();
  const auto finite = [](float x) { return std::isfinite(to_float(from_float<TypeParam>(x))); };
  std::uint32_t least = 0, past = 0x7f800000u;  // bits of a finite magnitude, and of an infinite one
  while (past - least > 1) {
    const std::uint32_t middle = least + (past - least) / 2;
    (finite(std::bit_cast<float>(middle)) ? least : past) = middle;
  }
  std::vector<float> values(5000, std::bit_cast<float>(least));
  values[7] = -values[7];
  EXPECT_EQ(first_past(dtype, values), values.size());
  for (const float bad : {std::bit_cast<float>(past), -std::bit_cast<float>(past), std::nanf(""), -INFINITY})
    for (const std::size_t at : {0u, 1023u, 1024u, 4999u}) {
      auto some = values;
      some[at] = bad;
      some.back() = bad;
      EXPECT_EQ(first_past(dtype, some), at) << bad;
      EXPECT_EQ(first_past(DType::f32, some), std::isfinite(bad) ? some.size() : at) << bad;
    }
  EXPECT_EQ(first_past(dtype, {}), 0u);
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::i32), 4u);
  EXPECT_EQ(size_of(DType::i16), 2u);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  EXPECT_EQ(parse_dtype("float32"), DType::f32);
  EXPECT_EQ(parse_dtype("bfloat16"), DType::bf16);
  EXPECT_EQ(parse_dtype("float16"), DType::f16);
  for (const auto* text : {"", "int32", "fp8", "FP32", " fp32"}) EXPECT_THROW(parse_dtype(text), Error) << text;
}

}  // namespace
}  // namespace zeepo
