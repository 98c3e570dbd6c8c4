#include "zeepo/infer/page_pool.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

using Pages = std::vector<std::int32_t>;

TEST(PagePool, GivesPagesThatFollowEachOther) {
  PagePool pool(8);
  EXPECT_EQ(pool.take(3), (Pages{0, 1, 2}));
  EXPECT_EQ(pool.take(2), (Pages{3, 4}));
  EXPECT_EQ(pool.free_pages(), 3);
  pool.give_back(Pages{0, 1, 2});
  EXPECT_EQ(pool.take(3), (Pages{0, 1, 2}));  // of two stretches of three the lower one
  EXPECT_EQ(pool.take(1), (Pages{5}));
}

TEST(PagePool, TakesTheShortestStretchThatIsLongEnough) {
  PagePool pool(10);
  (void)pool.take(10);
  pool.give_back(Pages{0, 1, 2, 3, 6, 7});
  EXPECT_EQ(pool.take(2), (Pages{6, 7}));
}

TEST(PagePool, GivesScatteredPagesRatherThanNone) {
  PagePool pool(6);
  (void)pool.take(6);
  pool.give_back(Pages{0, 2, 3, 5});
  EXPECT_EQ(pool.take(4), (Pages{0, 2, 3, 5}));
  EXPECT_EQ(pool.take(1), std::nullopt);
  EXPECT_EQ(pool.free_pages(), 0);
}

TEST(PagePool, TooManyChangeNothing) {
  PagePool pool(4);
  EXPECT_EQ(pool.take(5), std::nullopt);
  EXPECT_EQ(pool.free_pages(), 4);
  EXPECT_EQ(pool.take(0), Pages{});
}

TEST(PagePool, APageGivenBackTwiceIsAnError) {
  PagePool pool(4);
  (void)pool.take(2);
  EXPECT_TRUE(names(error_text([&] { pool.give_back(Pages{3}); }), "page 3"));
  EXPECT_TRUE(names(error_text([&] { pool.give_back(Pages{-1}); }), "page -1"));
}

}  // namespace
}  // namespace zeepo
