#include "zeepo/data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

TEST(Sampler, CountsWholeSamples) {
  EXPECT_EQ(sample_count(49, 48), 1);
  EXPECT_EQ(sample_count(96, 48), 1);
  EXPECT_EQ(sample_count(97, 48), 2);
  EXPECT_NE(error_text([] { sample_count(48, 48); }).find("has 48 tokens, one sample of --seq-len 48 needs 49"),
            std::string::npos);
  EXPECT_NE(error_text([] { sample_count(48, 0); }).find("--seq-len 0"), std::string::npos);
}

// k = (n−1)·G + (m·ranks + r)·B + b: every visit once, in order of step, micro-step, rank and row.
TEST(Sampler, VisitsAreNumberedWithoutGaps) {
  const BatchShape shape{.micro_batch = 2, .grad_accum = 3, .ranks = 4};
  std::int64_t expected = 0;
  for (std::int64_t step = 1; step <= 3; ++step)
    for (std::int64_t micro = 0; micro < 3; ++micro)
      for (std::int64_t rank = 0; rank < 4; ++rank)
        for (std::int64_t row = 0; row < 2; ++row) EXPECT_EQ(visit_number(shape, step, micro, rank, row), expected++);
}

TEST(Sampler, AsIsGoesRoundAndRound) {
  EXPECT_EQ(sample_index(6, 7, Order::as_is, 1), 6);
  EXPECT_EQ(sample_index(7, 7, Order::as_is, 1), 0);
}

std::vector<std::int64_t> epoch(std::int64_t number, std::int64_t count, std::uint64_t seed) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < count; ++i)
    samples.push_back(sample_index(number * count + i, count, Order::shuffled, seed));
  return samples;
}

TEST(Sampler, AShuffledEpochVisitsEachSampleOnce) {
  for (const std::int64_t count : {1, 2, 3, 4, 5, 16, 17, 1000, 4096}) {
    for (const std::int64_t number : {0, 1, 5}) {
      auto samples = epoch(number, count, 42);
      std::ranges::sort(samples);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(samples[static_cast<std::size_t>(i)], i) << count;
    }
  }
}

TEST(Sampler, OrderDependsOnSeedAndEpoch) {
  EXPECT_EQ(epoch(0, 1000, 1), epoch(0, 1000, 1));
  EXPECT_NE(epoch(0, 1000, 1), epoch(0, 1000, 2));
  EXPECT_NE(epoch(0, 1000, 1), epoch(1, 1000, 1));
  const auto samples = epoch(0, 1000, 1);
  int kept = 0;  // a random permutation keeps one place on average
  for (std::int64_t i = 0; i < 1000; ++i) kept += samples[static_cast<std::size_t>(i)] == i;
  EXPECT_LT(kept, 10);
}

TEST(Sampler, HoldsForCountsPast32Bits) {
  const std::int64_t count = (std::int64_t{1} << 40) + 12345;
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t sample = sample_index(i, count, Order::shuffled, 3);
    EXPECT_GE(sample, 0);
    EXPECT_LT(sample, count);
    seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 1000u);
}

}  // namespace
}  // namespace zeepo
