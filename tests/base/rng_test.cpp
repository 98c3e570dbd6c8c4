#include "zeepo/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace zeepo {
namespace {

// The first is one of Random123's known answers. The others have its keys and counters with the upper half of the
// counter zero, as here, and come from a program that gives all of its known answers.
TEST(Philox, HasTheKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox({0}, 0), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox({0x299f31d0a4093822u}, 0x85a308d3243f6a88u),
            (Words{0xe69c9c31u, 0xb5a3d762u, 0xe733bfc1u, 0x341a787cu}));
  EXPECT_EQ(philox({~std::uint64_t{0}}, ~std::uint64_t{0}),
            (Words{0x4d18d7d2u, 0x430ac65au, 0xbd2fa22au, 0x0afae10du}));
}

TEST(Rng, IsAFunctionOfKeyAndIndex) {
  const RngKey key = mix(RngKey{42}, "wte.weight");
  const auto forward = uniform(key, 1000);
  for (std::uint64_t i = 0; i < 100; ++i) (void)uniform(key, i);
  EXPECT_EQ(uniform(key, 1000), forward);
  EXPECT_EQ(philox(key, 250)[0] >> 8, static_cast<std::uint32_t>(forward * 0x1p24f)) << "four numbers a counter";
}

TEST(Rng, KeysAndSaltsGiveOtherStreams) {
  std::set<std::uint64_t> keys;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (std::uint64_t salt = 0; salt < 20; ++salt) keys.insert(mix(RngKey{seed}, salt).value);
  for (const auto* name : {"", "a", "b", "ab", "ba"}) keys.insert(mix(RngKey{1}, name).value);
  EXPECT_EQ(keys.size(), 405u);
  EXPECT_NE(uniform({1}, 0), uniform({2}, 0));
  // Past 2^32 the counter's high word counts.
  EXPECT_NE(philox({1}, 0), philox({1}, std::uint64_t{1} << 32));
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0, least = 1e9, most = -1e9;
};
template <class Draw>
Moments moments(const Draw& draw) {
  constexpr std::uint64_t kDraws = 400'000;
  Moments m;
  double sum = 0, squares = 0, fourths = 0;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = double{draw(i)};
    sum += x, squares += x * x, fourths += x * x * x * x;
    m.least = std::min(m.least, x), m.most = std::max(m.most, x);
  }
  m.mean = sum / kDraws;
  m.variance = squares / kDraws - m.mean * m.mean;
  m.fourth = fourths / kDraws;
  return m;
}

TEST(Rng, UniformFillsTheUnitInterval) {
  const auto m = moments([](std::uint64_t i) { return uniform({7}, i); });
  EXPECT_NEAR(m.mean, 0.5, 0.002);
  EXPECT_NEAR(m.variance, 1.0 / 12, 0.001);
  EXPECT_GE(m.least, 0);
  EXPECT_LT(m.most, 1);
  EXPECT_LT(m.least, 1e-4);
  EXPECT_GT(m.most, 1 - 1e-4);
}

TEST(Rng, NormalHasTheMomentsOfANormal) {
  const auto m = moments([](std::uint64_t i) { return normal({8}, i); });
  EXPECT_NEAR(m.mean, 0, 0.006);
  EXPECT_NEAR(m.variance, 1, 0.01);
  EXPECT_NEAR(m.fourth, 3, 0.1);
  EXPECT_GT(m.most, 4);
  EXPECT_LT(m.least, -4);
  double products = 0;  // neighbours come from one draw: they must not be correlated
  for (std::uint64_t i = 0; i < 200'000; i += 2) products += double{normal({8}, i)} * double{normal({8}, i + 1)};
  EXPECT_NEAR(products / 100'000, 0, 0.015);
}

}  // namespace
}  // namespace zeepo
