#include "zeepo/comm/wire_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/comm/collective_checks.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const Label kLabel{"gradients of block 3", 3};

std::vector<std::byte> encoded(WireType type, ConstView values, int threads = 1, View error = {}) {
  ThreadPool pool(threads);
  CpuStream stream(pool);
  std::vector<std::byte> message(message_bytes(type, values.dtype, values.elements()));
  encode(stream, type, values, kLabel.id, message.data(), error);
  return message;
}

std::vector<float> decoded(WireType type, const std::vector<std::byte>& message, std::int64_t n, int threads = 1) {
  ThreadPool pool(threads);
  CpuStream stream(pool);
  std::vector<float> values(static_cast<std::size_t>(n));
  WireMessage(type, n, message.data(), 2, kLabel).decode(stream, {values.data(), DType::f32, {n}});
  return values;
}

// The scale is at most 1/128 above the largest magnitude over the levels.
TEST(WireCodec, ErrorsAreWithinHalfAStepOfTheBlocksScale) {
  for (const auto& [type, levels] : {std::pair{WireType::int8, 127.0f}, {WireType::int4, 7.0f}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const std::int64_t n : {1, 127, 128, 129, 1000, 70000}) {
        Values values(dtype, n, 1);
        const auto back = decoded(type, encoded(type, values.view()), n);
        for (std::int64_t begin = 0; begin < n; begin += kWireBlock) {
          const std::int64_t end = std::min(n, begin + kWireBlock);
          float largest = 0;
          for (std::int64_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(element(values.view(), i)));
          for (std::int64_t i = begin; i < end; ++i)
            ASSERT_LE(std::fabs(element(values.view(), i) - back[static_cast<std::size_t>(i)]),
                      largest / levels * 0.505f)
                << name_of(type) << " " << name_of(dtype) << " " << i;
        }
      }
}

TEST(WireCodec, AMessageHasTheSameBitsOnAnyNumberOfThreads) {
  for (const WireType type : {WireType::int8, WireType::int4}) {
    Values values(DType::bf16, 300001, 3);
    const auto message = encoded(type, values.view());
    EXPECT_EQ(encoded(type, values.view(), 4), message);
    EXPECT_EQ(decoded(type, message, 300001, 4), decoded(type, message, 300001));
  }
}

TEST(WireCodec, PartsOfWholeBlocksHaveTheValuesOfTheWhole) {
  Values whole(DType::f32, 1024, 0);
  const auto all = decoded(WireType::int8, encoded(WireType::int8, whole.view()), 1024);
  for (int part = 0; part < 4; ++part) {
    const auto some = decoded(WireType::int8, encoded(WireType::int8, whole.part(part, 4)), 256);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + part * 256));
  }
}

TEST(WireCodec, ZerosAndTheSmallestNumbersAreKept) {
  std::vector<float> values(256);
  values[128] = std::numeric_limits<float>::denorm_min();
  values[200] = -1e-38f;
  for (const WireType type : {WireType::int8, WireType::int4}) {
    const auto back = decoded(type, encoded(type, {values.data(), DType::f32, {256}}), 256);
    for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(back[i], 0);
    EXPECT_EQ(back[128], 0);
    EXPECT_NEAR(back[200] / -1e-38f, 1, 0.05);
  }
}

TEST(WireCodec, TheLargestNumbersComeBackLarge) {
  std::vector<float> values(128, std::numeric_limits<float>::max());
  for (const WireType type : {WireType::int8, WireType::int4}) {
    const auto back = decoded(type, encoded(type, {values.data(), DType::f32, {128}}), 128);
    EXPECT_GE(back[0], 0.99f * values[0]);
  }
}

TEST(WireCodec, ABlockWithAnInfinityOrNanComesBackAsNan) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    std::vector<float> values(384, 1.0f);
    values[200] = bad;
    for (const WireType type : {WireType::int8, WireType::int4}) {
      const auto back = decoded(type, encoded(type, {values.data(), DType::f32, {384}}), 384);
      EXPECT_FALSE(std::isnan(back[0]) || std::isnan(back[383]));
      for (std::size_t i = 128; i < 256; ++i) EXPECT_TRUE(std::isnan(back[i]));
    }
  }
}

TEST(WireCodec, WhatIsLostIsAddedTheNextTime) {
  std::vector<float> values(128), error(128), sum(128);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.01f * static_cast<float>(i);
  const View view{values.data(), DType::f32, {128}}, lost{error.data(), DType::f32, {128}};
  constexpr int kTimes = 50;
  for (int time = 0; time < kTimes; ++time) {
    const auto back = decoded(WireType::int4, encoded(WireType::int4, view, 1, lost), 128);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += back[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i] + error[i], kTimes * values[i], 1e-3);
  values[5] = kInfinity;
  encoded(WireType::int4, view, 1, lost);
  for (const float e : error) EXPECT_EQ(e, 0);
}

TEST(WireCodec, DamagedAndOtherMessagesAreNamed) {
  Values values(DType::f32, 1000, 1);
  const auto message = encoded(WireType::int8, values.view());
  const auto refused = [&](const std::vector<std::byte>& bytes, WireType type, std::int64_t n, const Label& label) {
    return error_text([&] { WireMessage(type, n, bytes.data(), 2, label); });
  };
  EXPECT_NO_THROW(WireMessage(WireType::int8, 1000, message.data(), 2, kLabel));
  const std::size_t body = message_bytes(WireType::int8, DType::f32, 1000) - 8;
  for (const std::size_t at : {std::size_t{0}, std::size_t{5}, std::size_t{9}, std::size_t{17}, std::size_t{25},
                               std::size_t{32}, std::size_t{300}, body}) {
    auto damaged = message;
    damaged[at] ^= std::byte{4};
    const std::string text = refused(damaged, WireType::int8, 1000, kLabel);
    EXPECT_TRUE(names(text, "rank 2", "gradients of block 3")) << at << ": " << text;
  }
  EXPECT_TRUE(names(refused(message, WireType::int8, 1001, kLabel), "1000", "1001"));
  EXPECT_TRUE(names(refused(message, WireType::int4, 1000, kLabel), "int8", "int4"));
  EXPECT_TRUE(names(refused(message, WireType::int8, 1000, {"gradients of block 4", 4}), "id 3", "block 4"));
}

TEST(WireCodec, ScalesAddTwoHundredthsToInt8AndFourToInt4AtMost) {
  constexpr std::int64_t n = 1 << 20;
  EXPECT_LE(message_bytes(WireType::int8, DType::bf16, n), n * 102 / 100);
  EXPECT_LE(message_bytes(WireType::int4, DType::bf16, n), n / 2 * 104 / 100);
  EXPECT_EQ(message_bytes(WireType::same, DType::bf16, n), std::size_t{2 * n});
}

}  // namespace
}  // namespace zeepo
