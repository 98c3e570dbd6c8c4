#include "zeepo/kernels/coded_heads.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/kernel_checks.h"

namespace zeepo {
namespace {

TEST(CodedHeads, AreNearAndEachByItself) {
  Threads cpu(2);
  constexpr std::int64_t kRows = 5, kCount = 3, kDim = 16, kCoded = coded_head_bytes(kDim);
  for (const DType dtype : kFloatTypes) {
    TypedValues values = TypedValues::random(dtype, {2, kRows, kCount * kDim}, 7);
    values.set(kDim, std::nanf(""));                                      // of the second head of the first row
    for (std::int64_t d = 0; d < kDim; ++d) values.set(2 * kDim + d, 0);  // the third
    std::vector<std::byte> codes(static_cast<std::size_t>(2 * kRows * kCount * kCoded));
    TypedValues back(dtype, {2, kRows, kCount * kDim});
    const View coded{codes.data(), DType::u8, {2, kRows, kCount * kCoded}};
    encode_heads(cpu.stream, heads_of(values.view(), 0, kCount, kDim), heads_of(coded, 0, kCount, kCoded));
    expand_heads(cpu.stream, heads_of(coded, 0, kCount, kCoded), heads_of(back.view(), 0, kCount, kDim));
    for (std::int64_t head = 0; head < 2 * kRows * kCount; ++head) {
      double largest = 0;
      for (std::int64_t d = 0; d < kDim; ++d) largest = std::max(largest, std::abs(values[head * kDim + d]));
      for (std::int64_t d = 0; d < kDim; ++d) {
        const std::int64_t i = head * kDim + d;
        if (head == 1)
          EXPECT_TRUE(std::isnan(back[i]));
        else if (head == 2)
          EXPECT_EQ(back[i], 0);
        else
          EXPECT_NEAR(back[i], values[i], largest * (1.01 / 127 / 2 + rounding_of(dtype)));
      }
    }
  }
}

}  // namespace
}  // namespace zeepo
