#include "zeepo/kernels/moment_codes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "zeepo/base/dtype.h"

namespace zeepo {
namespace {

constexpr std::array kOrders{MomentOrder::first, MomentOrder::second};

// Above it some codes are infinite; no block of finite norm has such an exponent.
constexpr int kExponents = 253;

TEST(MomentCodes, StandForBf16Numbers) {
  for (const MomentOrder order : kOrders)
    for (int exponent = 0; exponent < kExponents; ++exponent)
      for (int code = 0; code < 256; ++code) {
        const float x = decode_moment(order, static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(exponent));
        ASSERT_EQ(to_float(from_float<bf16>(x)), x) << code << " of " << exponent;
      }
}

TEST(MomentCodes, ComeBackAsTheSameNumbers) {
  std::mt19937 random(1);
  for (const MomentOrder order : kOrders)
    for (int round = 0; round < 2000; ++round) {
      const auto exponent = static_cast<std::uint8_t>(random() % kExponents);
      std::vector<float> numbers(kMomentBlock);
      for (float& x : numbers) x = decode_moment(order, static_cast<std::uint8_t>(random() % 256), exponent);
      std::vector<std::uint8_t> codes(numbers.size());
      const std::uint8_t again = encode_moments(order, numbers, codes);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        ASSERT_EQ(decode_moment(order, codes[i], again), numbers[i]) << i << " with exponent " << int{exponent};
    }
}

TEST(MomentCodes, RoundToTheNearest) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(kMomentBlock);
  for (float& x : numbers) x = normal(random);
  std::vector<std::uint8_t> codes(numbers.size());
  const std::uint8_t exponent = encode_moments(MomentOrder::first, numbers, codes);
  for (std::size_t i = 0; i < numbers.size(); ++i)
    EXPECT_NEAR(decode_moment(MomentOrder::first, codes[i], exponent), numbers[i],
                std::abs(numbers[i]) / 16 + std::ldexp(1.0f, exponent - 127 - 17));
}

}  // namespace
}  // namespace zeepo
