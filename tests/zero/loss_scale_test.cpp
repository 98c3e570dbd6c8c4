#include "zeepo/zero/loss_scale.h"

#include "tests/support/errors.h"

namespace zeepo {
namespace {

TEST(LossScale, HalvesOnOverflowAndDoublesAfterPatience) {
  LossScale scale({.initial = 1024, .least = 1, .patience = 3});
  scale.update(true);
  EXPECT_EQ(scale.value(), 512);
  scale.update(false);
  scale.update(false);
  EXPECT_EQ(scale.value(), 512);
  scale.update(false);
  EXPECT_EQ(scale.value(), 1024);
  scale.update(false);
  scale.update(false);
  scale.update(true);  // patience starts anew
  EXPECT_EQ(scale.value(), 512);
  scale.update(false);
  scale.update(false);
  EXPECT_EQ(scale.value(), 512);
  scale.update(false);
  EXPECT_EQ(scale.value(), 1024);
}

TEST(LossScale, AtItsLeastAnOverflowIsAnError) {
  LossScale scale({.initial = 4, .least = 2, .patience = 3});
  scale.update(true);
  EXPECT_EQ(scale.value(), 2);
  EXPECT_TRUE(names(error_text([&] { scale.update(true); }), "fp16", "2", "--lr", "bf16"));
}

TEST(LossScale, StaysFinite) {
  LossScale scale({.initial = 0x1p31f, .least = 1, .patience = 1});
  scale.update(false);
  EXPECT_EQ(scale.value(), 0x1p31f);
}

TEST(LossScale, HysteresisForgivesOverflowsUntilTheScaleHasDoubled) {
  LossScale scale({.initial = 1024, .least = 1, .patience = 2, .hysteresis = 3});
  scale.update(true);
  scale.update(false);  // one good step is not enough to forget
  scale.update(true);
  EXPECT_EQ(scale.value(), 1024);
  scale.update(true);
  EXPECT_EQ(scale.value(), 512);
  scale.update(true);
  EXPECT_EQ(scale.value(), 256);
  scale.update(false);
  scale.update(false);
  EXPECT_EQ(scale.value(), 512);
  scale.update(true);
  scale.update(true);
  EXPECT_EQ(scale.value(), 512);
  scale.update(true);
  EXPECT_EQ(scale.value(), 256);
}

TEST(LossScale, FixedItStaysAndEndsWhenEveryStepOverflows) {
  LossScale scale({.initial = 128, .patience = 1, .fixed = true});
  scale.update(false);
  for (int i = 0; i + 1 < LossScale::kMostInARow; ++i) scale.update(true);
  scale.update(false);  // starts the count anew
  for (int i = 0; i + 1 < LossScale::kMostInARow; ++i) scale.update(true);
  EXPECT_EQ(scale.value(), 128);
  EXPECT_TRUE(scale.in_use());
  EXPECT_TRUE(names(error_text([&] { scale.update(true); }), "fp16", "20 steps", "128", "--lr"));
}

TEST(LossScale, WithoutFp16ItIsOne) {
  LossScale scale;
  scale.update(true);
  scale.update(false);
  EXPECT_EQ(scale.value(), 1);
  EXPECT_FALSE(scale.in_use());
}

}  // namespace
}  // namespace zeepo
