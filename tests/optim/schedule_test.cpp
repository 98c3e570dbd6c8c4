#include "zeepo/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace zeepo {
namespace {

TEST(Schedule, WarmUpRisesInEqualStepsToTheRate) {
  for (const ScheduleType type : {ScheduleType::constant, ScheduleType::linear, ScheduleType::cosine}) {
    const Schedule schedule{.type = type, .warmup = 10, .lr = 2};
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 110), 0.2);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 5, 110), 1);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 10, 110), 2);
  }
}

TEST(Schedule, ConstantStays) {
  const Schedule schedule{.lr = 2, .lr_end = 1};
  for (const std::int64_t step : {1, 50, 110}) EXPECT_EQ(learning_rate(schedule, step, 110), 2);
}

TEST(Schedule, LinearFallsToTheEndAtTheLastStep) {
  const Schedule schedule{.type = ScheduleType::linear, .warmup = 10, .lr = 2, .lr_end = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 11, 110), 2 - 0.015);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 60, 110), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 110, 110), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 200, 110), 0.5);
}

TEST(Schedule, CosineFallsToTheEndAtTheLastStep) {
  const Schedule schedule{.type = ScheduleType::cosine, .lr = 2, .lr_end = 0.5};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 25, 100), 0.5 + 1.5 * (1 + std::cos(std::numbers::pi / 4)) / 2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 50, 100), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 100, 100), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(Schedule{.type = ScheduleType::cosine, .lr = 2}, 100, 100), 0);
}

TEST(Schedule, ARunNoLongerThanItsWarmUpHasARate) {
  const Schedule schedule{.type = ScheduleType::linear, .warmup = 10, .lr = 2};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10, 10), 2);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3, 5), 0.6);
}

TEST(Schedule, WarmUpMayStartAboveZero) {
  const Schedule schedule{.warmup = 10, .lr = 2, .lr_start = 1};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 110), 1.1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 5, 110), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 10, 110), 2);
}

TEST(Schedule, WarmUpMayFollowTheLogarithm) {
  const Schedule schedule{.warmup = 16, .lr = 2, .lr_start = 1, .warmup_shape = WarmupShape::log};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1, 110), 1);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 4, 110), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 16, 110), 2);
  EXPECT_DOUBLE_EQ(learning_rate(Schedule{.warmup = 1, .lr = 2, .warmup_shape = WarmupShape::log}, 1, 110), 2);
}

TEST(Schedule, TheFallMayEndBeforeOrAfterTheLastStep) {
  const Schedule early{.type = ScheduleType::linear, .warmup = 10, .lr = 2, .lr_end = 0.5, .end = 60};
  EXPECT_DOUBLE_EQ(learning_rate(early, 35, 110), 1.25);
  EXPECT_DOUBLE_EQ(learning_rate(early, 60, 110), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(early, 110, 110), 0.5);
  const Schedule late{.type = ScheduleType::cosine, .lr = 2, .end = 200};
  EXPECT_DOUBLE_EQ(learning_rate(late, 100, 100), 1);
}

}  // namespace
}  // namespace zeepo
