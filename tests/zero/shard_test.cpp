#include "zeepo/zero/shard.h"

#include <gtest/gtest.h>

namespace zeepo {
namespace {

TEST(Shard, AllRanksTogetherCoverEveryElementOnce) {
  for (const std::int64_t align : {1, 8, 128})
    for (int world = 1; world <= 9; ++world)
      for (std::int64_t n = 0; n < 1200; n += n < 20 ? 1 : 37) {
        const std::int64_t size = shard_elements(n, world, align);
        EXPECT_EQ(size % align, 0);
        std::int64_t end = 0;
        for (int rank = 0; rank < world; ++rank) {
          const Extent shard = shard_of(n, rank, world, align);
          EXPECT_EQ(shard.begin, end) << n << " over " << world;
          EXPECT_EQ(shard.elements(), size);  // equal, so that every rank's links carry as much
          end = shard.end;
        }
        EXPECT_GE(end, n);
        EXPECT_LT(end, n + align * world + align) << n << " over " << world;  // a piece a rank is wasted at most
      }
}

TEST(Shard, FewerPiecesThanRanksLeaveTheLastOnesPadding) {
  EXPECT_EQ(shard_of(3, 0, 7, 128), (Extent{0, 128}));
  EXPECT_EQ(shard_of(3, 6, 7, 128), (Extent{768, 896}));
  EXPECT_TRUE(shard_of(0, 2, 7, 128).empty());
}

TEST(Extent, CommonIsWhatBothHold) {
  EXPECT_EQ(common({0, 10}, {5, 20}), (Extent{5, 10}));
  EXPECT_EQ(common({5, 20}, {0, 10}), (Extent{5, 10}));
  EXPECT_EQ(common({0, 10}, {2, 3}), (Extent{2, 3}));
  EXPECT_TRUE(common({0, 5}, {5, 9}).empty());
  EXPECT_TRUE(common({7, 9}, {0, 5}).empty());
  EXPECT_EQ(common({7, 9}, {0, 5}).elements(), 0);
}

}  // namespace
}  // namespace zeepo
