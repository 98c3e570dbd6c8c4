#include "zeepo/memory/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "zeepo/base/work_count.h"

namespace zeepo {
namespace {

// The same rule over one flag a unit of kAlignment bytes.
class NaiveArena {
 public:
  explicit NaiveArena(std::size_t capacity) : used_(capacity / Arena::kAlignment) {}

  std::optional<std::size_t> take(std::size_t bytes) {
    const std::size_t units = Arena::aligned(bytes) / Arena::kAlignment;
    std::size_t best = used_.size(), best_size = used_.size() + 1;
    for (std::size_t begin = 0; begin < used_.size();) {
      if (used_[begin]) {
        ++begin;
        continue;
      }
      std::size_t end = begin;
      while (end < used_.size() && !used_[end]) ++end;
      const bool open_end = end == used_.size();  // only where nothing else fits
      const bool better = open_end ? best_size > used_.size() : end - begin < best_size;
      if (end - begin >= units && better) best = begin, best_size = end - begin;
      begin = end;
    }
    if (best_size > used_.size()) return std::nullopt;
    std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(best), units, true);
    return best * Arena::kAlignment;
  }
  void give_back(std::size_t offset, std::size_t bytes) {
    std::fill_n(used_.begin() + static_cast<std::ptrdiff_t>(offset / Arena::kAlignment),
                Arena::aligned(bytes) / Arena::kAlignment, false);
  }
  std::size_t used() const {
    return static_cast<std::size_t>(std::count(used_.begin(), used_.end(), true)) * Arena::kAlignment;
  }

 private:
  std::vector<bool> used_;
};

struct Lease {
  std::size_t offset, bytes;
};

TEST(Arena, RandomSequencesGiveTheAddressesOfTheNaiveModel) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    constexpr std::size_t kCapacity = 64 * Arena::kAlignment;
    Arena arena(kCapacity);
    NaiveArena naive(kCapacity);
    std::vector<Lease> held;
    std::size_t high_water = 0;
    for (int i = 0; i < 2000; ++i) {
      if (held.empty() || random() % 5 < 3) {
        const std::size_t bytes = random() % (10 * Arena::kAlignment) + 1;
        const auto offset = arena.take(bytes), expected = naive.take(bytes);
        ASSERT_EQ(offset, expected) << "seed " << seed << ", call " << i;
        if (!offset) continue;
        held.push_back({*offset, bytes});
        high_water = std::max(high_water, *offset + Arena::aligned(bytes));
      } else {
        const std::size_t which = random() % held.size();
        arena.give_back(held[which].offset, held[which].bytes);
        naive.give_back(held[which].offset, held[which].bytes);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      }
      ASSERT_EQ(arena.used(), naive.used());
      ASSERT_EQ(arena.high_water(), high_water);
    }
    for (const auto& [offset, bytes] : held) arena.give_back(offset, bytes);
    EXPECT_EQ(arena.used(), 0u);
    EXPECT_EQ(arena.take(kCapacity), 0u) << "gaps were not joined";
  }
}

TEST(Arena, ARangeThatIsJustLargeEnoughGivesTheAddressesOfAnEndlessOne) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto addresses = [seed](Arena& arena) {
      std::mt19937 random(seed);
      std::vector<Lease> held;
      std::vector<std::optional<std::size_t>> result;
      for (int i = 0; i < 500; ++i) {
        if (held.size() < 10 || random() % 2 == 0) {
          const std::size_t bytes = random() % (10 * Arena::kAlignment) + 1;
          result.push_back(arena.take(bytes));
          if (result.back()) held.push_back({*result.back(), bytes});
        } else {
          const std::size_t which = random() % held.size();
          arena.give_back(held[which].offset, held[which].bytes);
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
        }
      }
      return result;
    };
    Arena endless(std::size_t{1} << 50);
    const auto expected = addresses(endless);
    Arena fitting(endless.high_water());
    EXPECT_EQ(addresses(fitting), expected) << "seed " << seed;
  }
}

TEST(Arena, LeasesAreAlignedAndNeverOverlap) {
  std::mt19937 random(1);
  Arena arena(1 << 20);
  std::vector<Lease> held;
  for (int i = 0; i < 3000; ++i) {
    if (held.size() > 20) {
      const std::size_t which = random() % held.size();
      arena.give_back(held[which].offset, held[which].bytes);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
    }
    const std::size_t bytes = random() % 30000 + 1;
    const auto offset = arena.take(bytes);
    ASSERT_TRUE(offset);
    EXPECT_EQ(*offset % Arena::kAlignment, 0u);
    EXPECT_LE(*offset + bytes, arena.capacity());
    for (const auto& other : held)
      ASSERT_TRUE(*offset + bytes <= other.offset || other.offset + other.bytes <= *offset) << i;
    held.push_back({*offset, bytes});
  }
}

TEST(Arena, WhatDoesNotFitChangesNothing) {
  Arena arena(1000);  // rounded down: three units
  EXPECT_EQ(arena.capacity(), 768u);
  EXPECT_EQ(arena.take(769), std::nullopt);
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_EQ(arena.take(1), 0u);
  EXPECT_EQ(arena.take(256), 256u);
  EXPECT_EQ(arena.take(257), std::nullopt);
  EXPECT_EQ(arena.take(256), 512u);
  EXPECT_EQ(arena.take(1), std::nullopt);
  EXPECT_EQ(Arena(255).take(1), std::nullopt);
}

// A tensor without elements takes no room, and may be given back.
TEST(Arena, NothingTakesNothing) {
  Arena arena(1024);
  const auto a = arena.take(0);
  ASSERT_TRUE(a);
  const auto b = arena.take(512);
  ASSERT_TRUE(b);
  arena.give_back(*a, 0);
  EXPECT_EQ(arena.used(), 512u);
  arena.give_back(*b, 512);
  EXPECT_EQ(arena.take(1024), 0u);
}

// Every other block is given back, so that there are as many gaps as blocks that are left.
std::int64_t work_among_gaps(std::size_t blocks) {
  Arena arena(8 * blocks * Arena::kAlignment);
  std::vector<Lease> held;
  for (std::size_t i = 0; i < 2 * blocks; ++i) {
    const std::size_t bytes = (1 + i % 3) * Arena::kAlignment;
    held.push_back({*arena.take(bytes), bytes});
  }
  for (std::size_t i = 0; i < held.size(); i += 2) arena.give_back(held[i].offset, held[i].bytes);
  const std::int64_t before = work_count();
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t bytes = (1 + i % 3) * Arena::kAlignment;
    arena.give_back(*arena.take(bytes), bytes);
  }
  return work_count() - before;
}

TEST(Arena, TenTimesTheGapsAreHardlyMoreWorkABlock) {
  const std::int64_t few = work_among_gaps(300), many = work_among_gaps(3000);
  EXPECT_GT(few, 0);
  EXPECT_LE(many, 20 * few);  // a search tree ten times as large is a few comparisons deeper
}

}  // namespace
}  // namespace zeepo
