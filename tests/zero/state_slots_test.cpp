// The ring of buffers by itself: read ahead, used, written behind, in order.
#include "zeepo/zero/state_slots.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/test_directory.h"
#include "tests/zero/room_rig.h"

namespace zeepo {
namespace {

constexpr std::size_t kBytes = 3 * SwapTier::kPageBytes;

TEST(StateSlots, BringEachBlockInOrderAndWriteItBack) {
  const TestDirectory files;
  for (const StepSide side : {StepSide::host, StepSide::device}) {
    Session session(small_session(files.path()));
    LowerTiers& tiers = session.lower();
    std::vector<Block> blocks;
    const Block page = tiers.host().allocate(kBytes, Kind::working);
    for (int i = 0; i < 5; ++i) {
      blocks.push_back(tiers.at(Place::nvme).allocate(kBytes, Kind::optimizer));
      std::memset(page.data(), i, kBytes);
      tiers.write(page.data(), blocks.back(), 0, kBytes, {"states"}).wait();
    }
    StateSlots slots(tiers, side, kBytes, 2);
    const auto part = [&](std::int64_t n) {
      return StateSlots::Part{&blocks[static_cast<std::size_t>(n % 5)], 0, kBytes, 0};
    };
    // Two rounds: what the first has written is what the second reads.
    std::vector<Completion> written(5);
    std::int64_t read = 0;
    for (std::int64_t used = 0; used < 10; ++used) {
      for (; read < 10 && slots.in_reach(read, used); ++read)
        slots.read(read, part(read), written[static_cast<std::size_t>(read % 5)]);
      EXPECT_EQ(read, std::min<std::int64_t>(10, used + 2));
      std::byte* memory = slots.use(used);
      for (std::size_t i = 0; i < kBytes; i += 911) {
        ASSERT_EQ(std::to_integer<int>(memory[i]), used % 5 + (used >= 5 ? 100 : 0)) << used;
      }
      std::memset(memory, static_cast<int>(used % 5 + 100), kBytes);
      written[static_cast<std::size_t>(used % 5)] = slots.write(used, part(used));
    }
    slots.drain();
  }
}

TEST(StateSlots, ReachIsFromOneToAllOfThem) {
  Session session(small_session());
  StateSlots slots(session.lower(), StepSide::device, 4096, 3);
  EXPECT_EQ(slots.buffers().size(), 3u);
  EXPECT_TRUE(slots.in_reach(2, 0));
  EXPECT_FALSE(slots.in_reach(3, 0));
  slots.set_reach(0);
  EXPECT_TRUE(slots.in_reach(0, 0));
  EXPECT_FALSE(slots.in_reach(1, 0));
  slots.set_reach(99);
  EXPECT_TRUE(slots.in_reach(2, 0));
  EXPECT_FALSE(slots.in_reach(3, 0));
}

}  // namespace
}  // namespace zeepo
