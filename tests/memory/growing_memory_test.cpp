#include "zeepo/memory/growing_memory.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/errors.h"
#include "zeepo/memory/arena_tier.h"

namespace zeepo {
namespace {

constexpr std::size_t kMebibyte = std::size_t{1} << 20;

TEST(GrowingMemory, TakesNoMoreThanHasBeenAskedForAndKeepsWhatIsThere) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  GrowingMemory memory(make_mapped_memory(stream), 100 * kMebibyte);
  EXPECT_EQ(memory.taken_bytes(), 0u);
  memory.cover(1);
  const std::size_t first = memory.taken_bytes();
  EXPECT_GE(first, 1u);
  EXPECT_LT(first, 100 * kMebibyte);
  std::memset(memory.data(), 5, first);
  memory.cover(first + 40 * kMebibyte);
  memory.data()[first + 40 * kMebibyte - 1] = std::byte{6};
  EXPECT_EQ(memory.data()[first - 1], std::byte{5});
  memory.cover(100 * kMebibyte);
  EXPECT_EQ(memory.taken_bytes(), 100 * kMebibyte);
}

TEST(ArenaTier, GrowsWithItsBlocksAndCountsWhatIsElsewhere) {
  ThreadPool pool(1);
  CpuStream stream(pool);
  ArenaTier tier("device", 64 * kMebibyte, stream, ArenaTier::Taken::as_asked);
  const Block low = tier.allocate(kMebibyte, Kind::params);
  const Block high = tier.allocate(40 * kMebibyte, Kind::grads);
  std::memset(high.data(), 1, high.bytes());
  EXPECT_EQ(high.data(), low.data() + kMebibyte);
  {
    const Block counted = tier.count(20 * kMebibyte, Kind::working);
    EXPECT_EQ(counted.data(), nullptr);
    EXPECT_EQ(tier.current()[Kind::working], static_cast<std::int64_t>(20 * kMebibyte));
    EXPECT_TRUE(
        names(error_text([&] { (void)tier.allocate(4 * kMebibyte, Kind::working); }), "do not fit in the budget"));
    EXPECT_TRUE(names(error_text([&] { (void)tier.count(4 * kMebibyte, Kind::working); }), "do not fit in the budget"));
  }
  EXPECT_EQ(tier.allocate(20 * kMebibyte, Kind::working).data(), high.data() + high.bytes());
}

}  // namespace
}  // namespace zeepo
