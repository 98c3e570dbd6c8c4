#include "zeepo/base/pace.h"

#include <gtest/gtest.h>

namespace zeepo {
namespace {

using Clock = Pace::Clock;
using std::chrono::seconds;

TEST(Pace, CarriesOneTransferAfterAnotherWhoeverGivesThem) {
  Pace pace(10);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(pace.arrival(20, start), start + seconds(2));
  EXPECT_EQ(pace.arrival(30, start), start + seconds(5));
  EXPECT_EQ(pace.arrival(0, start + seconds(1)), start + seconds(5));
}

TEST(Pace, MakesUpForNoTimeInWhichNothingWasGiven) {
  Pace pace(10);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(pace.arrival(10, start), start + seconds(1));
  EXPECT_EQ(pace.arrival(10, start + seconds(7)), start + seconds(8));
}

TEST(Pace, WithoutARateTakesNoTime) {
  Pace pace(0);
  const Clock::time_point start = Clock::now();
  EXPECT_EQ(pace.arrival(1000, start), start);
  EXPECT_EQ(pace.arrival(1000, start), start);
}

}  // namespace
}  // namespace zeepo
