#include "zeepo/infer/sampling.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

const std::vector<float> kLogits{1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 0.5f};

std::map<std::int32_t, int> draw(const std::vector<float>& logits, const Sampling& sampling, int count) {
  std::map<std::int32_t, int> counts;
  for (int i = 0; i < count; ++i) ++counts[choose_token(logits, sampling, static_cast<std::uint64_t>(i))];
  return counts;
}

std::set<std::int32_t> support(const Sampling& sampling) {
  std::set<std::int32_t> seen;
  for (const auto& [token, count] : draw(kLogits, sampling, 3000)) seen.insert(token);
  return seen;
}

TEST(Sampling, AtTemperatureZeroTheMostLikelyAndTheLowestAmongEquals) {
  EXPECT_EQ(most_likely(kLogits), 1);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(choose_token(kLogits, {.seed = i}, i), 1);
}

TEST(Sampling, TopKKeepsTheKMostLikely) {
  EXPECT_EQ(support({.temperature = 1, .top_k = 1}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(support({.temperature = 5, .top_k = 3}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(support({.temperature = 5, .top_k = 100}).size(), kLogits.size());
  EXPECT_EQ(support({.temperature = 5}).size(), kLogits.size());
}

TEST(Sampling, TopPKeepsTheFewestThatReachP) {
  // Probabilities at temperature 1: about 0.38, 0.38, 0.14, 0.05, 0.03, 0.007.
  EXPECT_EQ(support({.temperature = 1, .top_p = 0.3f}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(support({.temperature = 1, .top_p = 0.5f}), (std::set<std::int32_t>{1, 3}));
  EXPECT_EQ(support({.temperature = 1, .top_p = 0.8f}), (std::set<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(support({.temperature = 1, .top_p = 1e-9f}), (std::set<std::int32_t>{1}));
  EXPECT_EQ(support({.temperature = 5, .top_k = 2, .top_p = 0.99f}), (std::set<std::int32_t>{1, 3}));
}

TEST(Sampling, FrequenciesAreTheProbabilities) {
  for (const float temperature : {0.7f, 1.0f, 2.0f}) {
    constexpr int kDraws = 40000;
    const auto counts = draw(kLogits, {.temperature = temperature, .seed = 11}, kDraws);
    double total = 0, chi_square = 0;
    for (const float logit : kLogits) total += std::exp(logit / temperature);
    for (std::size_t i = 0; i < kLogits.size(); ++i) {
      const double expected = kDraws * std::exp(kLogits[i] / temperature) / total;
      const auto found = counts.find(static_cast<std::int32_t>(i));
      const double difference = (found == counts.end() ? 0 : found->second) - expected;
      chi_square += difference * difference / expected;
    }
    EXPECT_LT(chi_square, 20.5) << "temperature " << temperature;  // p = 0.001 with 5 degrees of freedom
  }
}

TEST(Sampling, IsAFunctionOfSeedAndPosition) {
  const auto sequence = [](std::uint64_t seed) {
    std::vector<std::int32_t> tokens;
    for (std::uint64_t i = 0; i < 100; ++i)
      tokens.push_back(choose_token(kLogits, {.temperature = 1, .seed = seed}, i));
    return tokens;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampling, LogitsThatAreNoNumbersAreAnError) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const float temperature : {0.0f, 1.0f}) {
    const Sampling sampling{.temperature = temperature};
    EXPECT_TRUE(names(error_text([&] { choose_token(std::vector<float>{nan, nan}, sampling, 0); }), "not finite"));
    EXPECT_TRUE(names(error_text([&] { choose_token(std::vector<float>{1, infinity}, sampling, 0); }), "not finite"));
    EXPECT_TRUE(names(error_text([&] {
                        choose_token(std::vector<float>{1, nan, 2, nan}, sampling, 0);
                      }),
                      "not finite"));
    EXPECT_EQ(choose_token(std::vector<float>{-infinity, 2, -infinity}, sampling, 0), 1);  // masked
  }
}

}  // namespace
}  // namespace zeepo
