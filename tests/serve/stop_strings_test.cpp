#include "zeepo/serve/stop_strings.h"

#include <gtest/gtest.h>

#include "zeepo/base/rng.h"

namespace zeepo {
namespace {

TEST(StopStrings, HoldBackWhatMayBecomeOne) {
  StopStrings stops({"END", "E!"});
  EXPECT_EQ(stops.push("a E"), "a ");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("x"), "ENx");
  EXPECT_EQ(stops.push("EN"), "");
  EXPECT_EQ(stops.push("D and more"), "");
  EXPECT_TRUE(stops.met());
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, GiveTheHeldTextAtTheEnd) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("the EN"), "the ");
  EXPECT_EQ(stops.finish(), "EN");
  EXPECT_FALSE(stops.met());
}

// However the text is cut into pieces, what is told is the text before the first stop string.
TEST(StopStrings, PiecesDoNotMatter) {
  const std::string text = "aababcababab!abba";
  for (const std::vector<std::string>& all :
       {std::vector<std::string>{"abab!"}, {"abc", "bb"}, {"zz"}, {"a"}, {"bab", "abba"}, {"abba"}}) {
    std::size_t first = text.size();
    bool met = false;
    for (const std::string& stop : all)
      if (const std::size_t at = text.find(stop); at != std::string::npos) {
        first = std::min(first, at);
        met = true;
      }
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      StopStrings stops(all);
      std::string told;
      std::uint64_t draws = 0;
      for (std::size_t at = 0; at < text.size();) {
        const auto count = 1 + static_cast<std::size_t>(uniform(RngKey{seed}, draws++) * 4);
        told += stops.push(text.substr(at, count));
        ASSERT_TRUE(text.starts_with(told));
        at += count;
      }
      told += stops.finish();
      EXPECT_EQ(told, text.substr(0, first)) << all[0];
      EXPECT_EQ(stops.met(), met);
    }
  }
}

}  // namespace
}  // namespace zeepo
