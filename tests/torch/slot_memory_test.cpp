#include "zeepo/torch/slot_memory.h"

#include <gtest/gtest.h>

#include <cstring>

namespace zeepo {
namespace {

constexpr std::size_t kBytes = 10000;

Stream& cpu() {
  static ThreadPool pool(1);
  static CpuStream stream(pool);
  return stream;
}

void write(const SlotMemory& memory, std::size_t range, int value) {
  std::memset(memory.address(range), value, kBytes);
}

TEST(SlotMemory, RangesKeepTheirAddressesWhileSlotsComeAndGo) {
  SlotMemory memory({kBytes, kBytes, kBytes}, AbsentMemory::stale, cpu());
  const std::byte* const first = memory.address(0);
  for (int turn = 0; turn < 3; ++turn)
    for (std::size_t range = 0; range < 3; ++range) {
      memory.bring(range);
      write(memory, range, 7);
      EXPECT_EQ(memory.address(range)[kBytes - 1], std::byte{7});
      memory.give_back(range);
    }
  EXPECT_EQ(memory.address(0), first);
  EXPECT_EQ(memory.slots(), 1u);  // one at a time was there
}

TEST(SlotMemory, RangesThatAreThereTogetherShareNothing) {
  SlotMemory memory({kBytes, kBytes, kBytes}, AbsentMemory::stale, cpu());
  memory.bring(0);
  memory.bring(2);
  write(memory, 0, 1);
  write(memory, 2, 2);
  EXPECT_EQ(memory.address(0)[0], std::byte{1});
  EXPECT_EQ(memory.address(2)[0], std::byte{2});
  EXPECT_EQ(memory.slots(), 2u);
}

TEST(SlotMemory, ASlotServesRangesOfAboutItsSize) {
  SlotMemory memory({16 * kBytes, 9 * kBytes, kBytes}, AbsentMemory::stale, cpu());
  for (std::size_t range = 0; range < 3; ++range) {
    memory.bring(range);
    write(memory, range, 3);
    memory.give_back(range);
  }
  EXPECT_EQ(memory.slots(), 2u);  // the second had the first one's
}

TEST(SlotMemory, ARangeGetsTheSlotBackThatItHad) {
  SlotMemory memory({kBytes, kBytes}, AbsentMemory::stale, cpu());
  memory.bring(0);
  memory.bring(1);
  write(memory, 1, 5);
  memory.give_back(0);
  memory.give_back(1);
  memory.bring(1);
  EXPECT_EQ(memory.address(1)[3], std::byte{5});
  EXPECT_EQ(memory.slots(), 2u);
}

TEST(SlotMemoryDeathTest, ProtectedMemoryThatIsAbsentEndsWhoReadsIt) {
  SlotMemory memory({kBytes}, AbsentMemory::guarded, cpu());
  memory.bring(0);
  write(memory, 0, 1);
  memory.give_back(0);
  EXPECT_DEATH(
      {
        volatile std::byte read = memory.address(0)[0];
        static_cast<void>(read);
      },
      "");
}

}  // namespace
}  // namespace zeepo
