#include "zeepo/memory/arena_tier.h"

#include <cstring>
#include <random>
#include <vector>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr std::size_t kArenaMiB = 1 << 20;

TEST(ArenaTier, CountsBytesByKind) {
  ArenaTier tier("device", 4 * kArenaMiB, ArenaTier::Backing::memory);
  {
    const Block params = tier.allocate(1000, Kind::params);
    EXPECT_EQ(params.bytes(), 1000u);
    EXPECT_EQ(params.kind(), Kind::params);
    {
      const Block grads = tier.allocate(300, Kind::grads), working = tier.allocate(70, Kind::working);
      EXPECT_EQ(tier.current()[Kind::params], 1000);
      EXPECT_EQ(tier.current()[Kind::grads], 300);
      EXPECT_EQ(tier.current()[Kind::working], 70);
      EXPECT_EQ(tier.current().total, 1370);
    }
    const Block activations = tier.allocate(200, Kind::activations);
    EXPECT_EQ(tier.current()[Kind::grads], 0);
    EXPECT_EQ(tier.current().total, 1200);
  }
  EXPECT_EQ(tier.current().total, 0);
  EXPECT_EQ(tier.free_bytes(), 4 * kArenaMiB);
  // Each kind's own peak; the total's is of one moment.
  EXPECT_EQ(tier.peak()[Kind::grads], 300);
  EXPECT_EQ(tier.peak()[Kind::activations], 200);
  EXPECT_EQ(tier.peak().total, 1370);
  tier.restart_peak();
  EXPECT_EQ(tier.peak().total, 0);
}

TEST(ArenaTier, TellsThePeakSinceItWasAskedLast) {
  ArenaTier tier("device", 4 * kArenaMiB, ArenaTier::Backing::memory);
  const Block params = tier.allocate(1000, Kind::params);
  { const Block grads = tier.allocate(300, Kind::grads); }
  EXPECT_EQ(tier.take_recent_peak().total, 1300);
  { const Block working = tier.allocate(70, Kind::working); }
  const Usage recent = tier.take_recent_peak();
  EXPECT_EQ(recent.total, 1070);
  EXPECT_EQ(recent[Kind::params], 1000);
  EXPECT_EQ(recent[Kind::grads], 0);
  EXPECT_EQ(recent[Kind::working], 70);
  EXPECT_EQ(tier.take_recent_peak().total, 1000);  // what is held
  EXPECT_EQ(tier.peak().total, 1300);
}

TEST(ArenaTier, AFullTierSaysWhatWasAskedAndWhoHoldsIt) {
  ArenaTier tier("device", 2 * kArenaMiB, ArenaTier::Backing::memory);
  const Block params = tier.allocate(kArenaMiB, Kind::params),
              optimizer = tier.allocate(kArenaMiB / 2, Kind::optimizer);
  const auto text = error_text([&] { (void)tier.allocate(kArenaMiB, Kind::activations); });
  EXPECT_TRUE(names(text, "device memory", "1.00 MiB", "activations", "2.00 MiB", "params 1.00 MiB", "optimizer 512",
                    "--memory device="));
  EXPECT_EQ(tier.current().total, static_cast<std::int64_t>(kArenaMiB + kArenaMiB / 2));
  EXPECT_TRUE(names(error_text([] { (void)ArenaTier("host", 1, ArenaTier::Backing::memory).allocate(1, Kind::grads); }),
                    "host memory", "held: nothing"));
}

TEST(ArenaTier, BlocksAreWritableAndApart) {
  ArenaTier tier("device", kArenaMiB, ArenaTier::Backing::memory);
  std::vector<Block> blocks;
  for (int i = 0; i < 20; ++i) {
    blocks.push_back(tier.allocate(1000, Kind::working));
    std::memset(blocks.back().data(), i, 1000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(blocks.back().data()) % Arena::kAlignment, 0u);
  }
  for (int i = 0; i < 20; ++i)
    for (std::size_t at = 0; at < 1000; ++at)
      ASSERT_EQ(blocks[static_cast<std::size_t>(i)].data()[at], static_cast<std::byte>(i));
}

TEST(Block, MovingLeavesOneOwner) {
  ArenaTier tier("device", kArenaMiB, ArenaTier::Backing::memory);
  Block a = tier.allocate(1000, Kind::params), b = tier.allocate(2000, Kind::grads);
  std::byte* const data = a.data();
  b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(tier.current().total, 1000);
  EXPECT_EQ(tier.current()[Kind::grads], 0);
  Block c(std::move(b));
  EXPECT_EQ(tier.current().total, 1000);
  c = Block();
  EXPECT_EQ(tier.current().total, 0);
}

TEST(ArenaTier, ADryTierHasTheAddressesOfTheRealOne) {
  ArenaTier real("device", 8 * kArenaMiB, ArenaTier::Backing::memory),
      dry("device", 8 * kArenaMiB, ArenaTier::Backing::none);
  std::mt19937 random(3);
  std::vector<std::pair<Block, Block>> held;
  for (int i = 0; i < 500; ++i) {
    if (held.size() > 10) held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
    const std::size_t bytes = random() % 100000 + 1;
    const Kind kind = kKinds[random() % kKinds.size()];
    held.emplace_back(real.allocate(bytes, kind), dry.allocate(bytes, kind));
    EXPECT_EQ(held.back().second.data(), nullptr);
    ASSERT_EQ(real.high_water(), dry.high_water()) << i;
    ASSERT_EQ(real.free_bytes(), dry.free_bytes()) << i;
  }
  EXPECT_EQ(real.peak().bytes, dry.peak().bytes);
}

}  // namespace
}  // namespace zeepo
