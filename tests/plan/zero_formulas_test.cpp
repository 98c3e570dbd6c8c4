// The figures of the ZeRO paper, and others counted by hand.
#include "zeepo/plan/zero_formulas.h"

#include <gtest/gtest.h>

#include "tests/plan/paper_tables.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr std::int64_t kBillion = 1'000'000'000;

double gigabytes(int stage, std::int64_t params, std::int64_t ranks) {
  return static_cast<double>(state_bytes(stage, params, ranks).total) / 1e9;
}

// Figure 1: 7.5B parameters on 64 GPUs.
TEST(ZeroFormulas, GiveTheExampleOfThePaper) {
  const std::int64_t params = 7'500'000'000;
  EXPECT_EQ(state_bytes(0, params, 64).total, 120'000'000'000);
  EXPECT_EQ(state_bytes(1, params, 64).total, 31'406'250'000);  // printed 31.4
  EXPECT_EQ(state_bytes(2, params, 64).total, 16'640'625'000);  // printed 16.6
  EXPECT_EQ(state_bytes(3, params, 64).total, 1'875'000'000);   // printed 1.88
}

TEST(ZeroFormulas, GiveTheTableOfThePaper) {
  for (const ZeroRow& row : zero_table())
    for (std::size_t i = 0; i < row.printed.size(); ++i) {
      const double exact = gigabytes(static_cast<int>(i % 3) + 1, kZeroModels[i / 3], row.ranks);
      EXPECT_TRUE(is_printed(exact, row, i)) << row.ranks << " ranks, cell " << i << ": " << exact;
    }
}

// By hand: cells that the paper does not have.
TEST(ZeroFormulas, GiveOtherCells) {
  EXPECT_EQ(state_bytes(1, 175 * kBillion, 8).total, (700 + 262) * kBillion + 500'000'000);
  EXPECT_EQ(state_bytes(2, 175 * kBillion, 8).total, (350 + 306) * kBillion + 250'000'000);
  EXPECT_EQ(state_bytes(3, 175 * kBillion, 8).total, 350 * kBillion);
  const BytesPerParam infinity = BytesPerParam::of(20);
  EXPECT_EQ(state_bytes(0, kBillion, 4, infinity).total, 20 * kBillion);
  EXPECT_EQ(state_bytes(1, kBillion, 4, infinity).total, 8 * kBillion);
  EXPECT_EQ(state_bytes(2, kBillion, 4, infinity).total, 6'500'000'000);
  EXPECT_EQ(state_bytes(3, kBillion, 4, infinity).total, 5 * kBillion);
}

TEST(ZeroFormulas, TellTheKindsApart) {
  const StateBytes two = state_bytes(2, 1000, 4);
  EXPECT_EQ(two.params, 2000);
  EXPECT_EQ(two.grads, 500);
  EXPECT_EQ(two.optimizer, 3000);
  EXPECT_EQ(two.total, 5500);
  // 12 x 7 / 5 is 16.8.
  EXPECT_EQ(state_bytes(1, 7, 5).optimizer, 17);
  EXPECT_EQ(state_bytes(1, 7, 5).total, 28 + 17);
  // 2 x 7 / 5 and 12 x 7 / 5: rounded together.
  EXPECT_EQ(state_bytes(2, 7, 5).total, 14 + 20);
}

TEST(ZeroFormulas, ShardNothingOnOneRank) {
  for (int stage = 0; stage < kZeroStages; ++stage) EXPECT_EQ(state_bytes(stage, 1001, 1).total, 16 * 1001);
}

TEST(ZeroFormulas, CountWhatIsSent) {
  for (const int stage : {0, 1, 2}) EXPECT_EQ(comm_elements(stage, 7'500'000'000), 15'000'000'000);
  EXPECT_EQ(comm_elements(3, 7'500'000'000), 22'500'000'000);
}

TEST(ZeroFormulas, ShareAVectorEvenly) {
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(plain_share(1000, 4, rank), 250);
  for (const std::int64_t params : {5, 1001, 4096, 999'983})
    for (const std::int64_t ranks : {1, 2, 3, 5}) {
      std::int64_t sum = 0;
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        sum += plain_share(params, ranks, rank);
        EXPECT_LE(plain_share(params, ranks, 0) - plain_share(params, ranks, rank), 1);
      }
      EXPECT_EQ(sum, params);
    }
}

TEST(ZeroFormulas, AreRightForVeryLargeModels) {
  const std::int64_t params = 1'000'000'000'000'000;  // 10^15
  EXPECT_EQ(state_bytes(0, params, 1).total, 16'000'000'000'000'000);
  EXPECT_EQ(state_bytes(3, params, 1'000'000).total, 16'000'000'000);
  EXPECT_EQ(comm_elements(3, params), 3 * params);
}

TEST(ZeroFormulas, RefuseNonsense) {
  const auto says = [](auto&& f, auto... parts) { EXPECT_TRUE(names(error_text(f), parts...)); };
  says([] { state_bytes(4, 10, 1); }, "--stage 4", "from 0 to 3");
  says([] { state_bytes(-1, 10, 1); }, "--stage -1");
  says([] { state_bytes(0, 0, 1); }, "--params 0", "at least 1");
  says([] { state_bytes(0, -5, 1); }, "--params -5");
  says([] { state_bytes(3, 10, 0); }, "--ranks 0", "at least 1");
  says([] { state_bytes(3, 10, -2); }, "--ranks -2");
  says([] { state_bytes(3, 3, 4); }, "--ranks 4", "3 parameters", "at most 3");
  says([] { plain_share(3, 4, 0); }, "--ranks 4");
  says([] { plain_share(10, 4, 4); }, "rank 4", "from 0 to 3");
  says([] { state_bytes(0, 1'000'000'000'000'000'000, 1); }, "1000000000000000000", "2^63");
  says([] { BytesPerParam::of(12); }, "--bytes-per-param 12", "16", "20");
}

}  // namespace
}  // namespace zeepo
