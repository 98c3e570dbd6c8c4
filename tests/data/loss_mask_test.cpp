#include "zeepo/data/loss_mask.h"

#include "tests/support/errors.h"

namespace zeepo {
namespace {

TEST(LossMask, GivesBackWhatWasAppendedAtAnyPlace) {
  LossMask mask;
  std::vector<bool> expected;
  for (int i = 0; i < 3000; ++i) {
    const std::int64_t tokens = i * 7 % 23;
    mask.append(tokens, i % 3 == 0);
    expected.insert(expected.end(), static_cast<std::size_t>(tokens), i % 3 == 0);
  }
  mask.append(1'000'000, true);  // more than is held back
  expected.insert(expected.end(), 1'000'000, true);
  mask.finish();
  const auto size = static_cast<std::int64_t>(expected.size());
  ASSERT_EQ(mask.tokens(), size);
  EXPECT_EQ(mask.counted(), std::count(expected.begin(), expected.end(), true));
  EXPECT_EQ(mask.read(0, size), expected);
  for (const std::int64_t begin : {0, 1, 7, 8, 12'345, 33'000, static_cast<int>(size) - 5})
    for (const std::int64_t count : {0, 1, 5, 64, 1000}) {
      if (begin + count > size) continue;
      const std::vector<bool> part(expected.begin() + begin, expected.begin() + begin + count);
      EXPECT_EQ(mask.read(begin, count), part) << begin << " " << count;
      EXPECT_EQ(mask.count(begin, count), std::count(part.begin(), part.end(), true)) << begin << " " << count;
    }
  EXPECT_TRUE(names(error_text([&] { (void)mask.count(size - 1, 2); }), "were asked for", fmt::format("{}", size)));
}

}  // namespace
}  // namespace zeepo
