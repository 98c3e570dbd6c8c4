#include "zeepo/zero/open_visits.h"

#include <gtest/gtest.h>

#include "tests/zero/room_rig.h"

namespace zeepo {
namespace {

using Units = std::vector<std::size_t>;

TEST(OpenVisits, AUnitIsCompleteAfterTheLastOfItsVisits) {
  UnitPlan plan = plain_units({1, 1});
  plan.visits.push_back({{0, 1}, "both"});  // a head that borrows unit 0's weight
  OpenVisits visits(plan);
  for (const std::size_t visit : {0u, 1u, 2u}) visits.open(visit);
  EXPECT_EQ(visits.close(2), Units{});
  EXPECT_EQ(visits.close(1), Units{1});
  EXPECT_EQ(visits.close(0), Units{0});
}

// A checkpointed block's backward visit runs its forward pass, tiles included, once more.
TEST(OpenVisits, ATileIsCompleteInTheLastBackwardVisitOfItsBlock) {
  UnitPlan plan = plain_units({1, 1});
  plan.visits[1].around = 0;
  OpenVisits visits(plan);
  visits.open(0);
  visits.open(0);  // the block is called twice
  visits.open(1);
  EXPECT_EQ(visits.close(1), Units{});
  EXPECT_EQ(visits.close(0), Units{});
  visits.open(1);
  EXPECT_EQ(visits.close(1), Units{1});
  EXPECT_EQ(visits.close(0), Units{0});
}

TEST(OpenVisits, AfterClearNothingIsOpen) {
  const UnitPlan plan = plain_units({1});
  OpenVisits visits(plan);
  visits.open(0);
  visits.clear();
  visits.open(0);
  EXPECT_EQ(visits.close(0), Units{0});
}

}  // namespace
}  // namespace zeepo
