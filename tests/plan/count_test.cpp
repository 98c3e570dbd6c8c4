#include "zeepo/plan/count.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

TEST(Count, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parse_count("--params", "7500000000"), 7'500'000'000);
  EXPECT_EQ(parse_count("--params", "7.5e9"), 7'500'000'000);
  EXPECT_EQ(parse_count("--params", "7.5B"), 7'500'000'000);
  EXPECT_EQ(parse_count("--params", "350M"), 350'000'000);
  EXPECT_EQ(parse_count("--params", "8.03B"), 8'030'000'000);  // 8.03 x 1e9 is a little less
  EXPECT_EQ(parse_count("--params", "1T"), 1'000'000'000'000);
  EXPECT_EQ(parse_count("--params", "1e15"), 1'000'000'000'000'000);
  EXPECT_EQ(parse_count("--params", "9223372036854775807"), kMost);
  EXPECT_EQ(parse_count("--vocab", "0", 0), 0);
}

TEST(Count, RefusesNonsenseNamingIt) {
  for (const char* text : {"", "0", "-1", "-7.5e9", "1.5", "nan", "inf", "1e19", "9223372036854775808", "1e400", "7.5e",
                           "7.5 B", "7K", "B", "7.5eB", "7MB", "0x10", "seven", "1,000"})
    EXPECT_TRUE(names(error_text([&] { parse_count("plan: --params", text); }), "plan: --params", text, "7.5e9"))
        << text;
}

TEST(Count, NeverOverflowsInSilence) {
  EXPECT_EQ(checked_product("x", {std::int64_t{1} << 31, std::int64_t{1} << 31}), std::int64_t{1} << 62);
  EXPECT_TRUE(names(error_text([] {
                      checked_product("bytes", {1'000'000'000'000'000'000, 16});
                    }),
                    "bytes", "1000000000000000000 x 16", "2^63"));
  EXPECT_EQ(checked_sum("x", kMost - 1, 1), kMost);
  EXPECT_TRUE(names(error_text([] { checked_sum("bytes", kMost, 1); }), "bytes", "2^63"));
  EXPECT_EQ(divide_up(7, 2), 4);
  EXPECT_EQ(divide_up(8, 2), 4);
  EXPECT_EQ(divide_up(kMost, 1), kMost);
}

}  // namespace
}  // namespace zeepo
