#include "zeepo/plan/sweep.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/errors.h"
#include "zeepo/plan/plan_curves.h"

namespace zeepo {
namespace {

const std::vector<std::string> kNames{"ranks", "hidden", "bandwidth"};

TEST(Sweep, ReadsListsAndRanges) {
  using Values = std::vector<std::string>;
  EXPECT_EQ(parse_sweep("ranks=1,4,64", kNames).name, "ranks");
  EXPECT_EQ(parse_sweep("ranks=1,4,64", kNames).values, (Values{"1", "4", "64"}));
  EXPECT_EQ(parse_sweep("hidden=1024..8192", kNames).values, (Values{"1024", "2048", "4096", "8192"}));
  EXPECT_EQ(parse_sweep("hidden=3..20", kNames).values, (Values{"3", "6", "12"}));
  EXPECT_EQ(parse_sweep("bandwidth=0.5", kNames).values, (Values{"0.5"}));
  EXPECT_EQ(parse_sweep("ranks=4e18..9e18", kNames).values.size(), 2u);  // and does not overflow
}

TEST(Sweep, RefusesNonsense) {
  for (const char* text : {"", "ranks", "width=1,2", "ranks=", "ranks=1,,2", "ranks=8..4", "ranks=0..4", "ranks=x..4"})
    EXPECT_TRUE(names(error_text([&] { parse_sweep(text, kNames); }), "plan: --sweep")) << text;
  const std::vector<std::string> many(1000, "1");
  EXPECT_TRUE(names(error_text([&] { points_of({{"ranks", many}, {"hidden", many}}); }), "100000"));
  EXPECT_TRUE(names(error_text([] { points_of({{"ranks", {"1"}}, {"ranks", {"2"}}}); }), "--sweep ranks", "twice"));
}

TEST(Sweep, TakesEveryCombination) {
  const auto points = points_of({{"ranks", {"1", "2"}}, {"hidden", {"8", "16", "32"}}});
  ASSERT_EQ(points.size(), 6u);
  EXPECT_EQ(points[0], (SweepPoint{{"ranks", "1"}, {"hidden", "8"}}));
  EXPECT_EQ(points[5], (SweepPoint{{"ranks", "2"}, {"hidden", "32"}}));
  EXPECT_EQ(points_of({}).size(), 1u);
}

// The axis of a curve has the numbers that the formulas were asked with.
TEST(Sweep, DrawsCurvesOverTheNumbersThatAreMeant) {
  const Sweep sweep{"params", {"500M", "7.5e9", "1T"}};
  std::vector<Textbook> textbooks;
  for (const std::int64_t params : {500'000'000LL, 7'500'000'000LL, 1'000'000'000'000LL}) {
    TextbookQuestion question;
    question.params = params;
    textbooks.push_back(textbook_of(question));
  }
  EXPECT_EQ(curves_of({sweep}, textbooks).at(0).xs, (std::vector<double>{5e8, 7.5e9, 1e12}));
  EXPECT_EQ(number_of({"bandwidth", {}}, "10.5"), 10.5);
}

TEST(Sweep, HasAsManyCellsAsColumns) {
  const std::string header = csv_header({{"ranks", {"4"}}});
  TextbookQuestion by_params;
  by_params.params = 1000;
  by_params.ranks = 4;
  TextbookQuestion by_shape = TextbookQuestion::of({.layers = 2, .hidden = 64, .heads = 4});
  by_shape.bytes_per_second = 1e9;
  for (const TextbookQuestion& question : {by_params, by_shape}) {
    const std::string row = csv_row({{"ranks", "4"}}, textbook_of(question));
    EXPECT_EQ(std::ranges::count(row, ','), std::ranges::count(header, ',')) << row;
  }
  EXPECT_TRUE(csv_row({{"ranks", "4"}}, textbook_of(by_params)).starts_with("4,1000,16000,7000,5500,4000,,,,,"));
}

}  // namespace
}  // namespace zeepo
