#include "zeepo/metrics/figure_text.h"

#include <gtest/gtest.h>

namespace zeepo {
namespace {

TEST(FigureText, TellsDurationsWithoutExponents) {
  EXPECT_EQ(duration_text(0.00431), "4.31 ms");
  EXPECT_EQ(duration_text(0.9996), "1 s");
  EXPECT_EQ(duration_text(119), "119 s");
  EXPECT_EQ(duration_text(125), "2 min 05 s");
  EXPECT_EQ(duration_text(9000), "2 h 30 min");
  EXPECT_EQ(duration_text(-1), "?");
}

}  // namespace
}  // namespace zeepo
