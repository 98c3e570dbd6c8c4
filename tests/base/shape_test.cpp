#include "zeepo/base/shape.h"

#include <gtest/gtest.h>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

TEST(Shape, CountsAndIndexes) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape[0], 2);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape[-3], 2);
  EXPECT_EQ(shape.str(), "(2, 3, 4)");
  EXPECT_EQ(shape.with_last(7), (Shape{2, 3, 7}));
  EXPECT_NE(shape, (Shape{2, 3}));
  EXPECT_NE((Shape{1, 2}), (Shape{1, 2, 0}));
}

TEST(Shape, OfNothingIsOneElement) {
  EXPECT_EQ(Shape().elements(), 1);
  EXPECT_EQ(Shape().rows(), 1);
  EXPECT_EQ(Shape().str(), "()");
  EXPECT_EQ((Shape{5, 0}).elements(), 0);
  EXPECT_EQ((Shape{5, 0}).rows(), 5);
}

TEST(Shape, RejectsTooManyOrNegativeExtents) {
  EXPECT_THROW((Shape{1, 2, 3, 4, 5}), Error);
  EXPECT_THROW((Shape{2, -1}), Error);
}

}  // namespace
}  // namespace zeepo
