#include "zeepo/base/machine.h"

#include <gtest/gtest.h>

#include <vector>

namespace zeepo {
namespace {

TEST(UsableMemoryBytes, HoldsThisProcess) { EXPECT_GT(usable_memory_bytes(), peak_resident_bytes()); }

TEST(FreeMemoryBytes, IsSomeOfTheUsable) {
  EXPECT_GT(free_memory_bytes(), 0);
  EXPECT_LT(free_memory_bytes(), usable_memory_bytes());
}

TEST(PeakResidentBytes, GrowsWithUse) {
  const auto before = peak_resident_bytes();
  EXPECT_GT(before, 0);
  std::vector<char> memory(static_cast<std::size_t>(before) + (std::size_t{64} << 20), 1);
  EXPECT_GT(peak_resident_bytes(), before);
  EXPECT_EQ(memory.back(), 1);
}

}  // namespace
}  // namespace zeepo
