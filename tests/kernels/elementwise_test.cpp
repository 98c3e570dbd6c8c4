#include "zeepo/kernels/elementwise.h"

#include <limits>

#include "tests/kernels/kernel_checks.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::int64_t kElementSizes[] = {0, 1, 7, 15, 16, 17, 63, 1000, 32768, 70001};

TEST(Elementwise, AddAndScaleRoundOnce) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const auto n : kElementSizes) {
      const auto a = TypedValues::random(dtype, {n}, 1), b = TypedValues::random(dtype, {n}, 2);
      TypedValues sum(dtype, {n}), product(dtype, {n}), expected(dtype, {n});
      add(threads.stream, a.view(), b.view(), sum.view());
      for (std::int64_t i = 0; i < n; ++i) expected.set(i, static_cast<float>(a[i]) + static_cast<float>(b[i]));
      EXPECT_TRUE(sum.bytes() == expected.bytes()) << name_of(dtype) << " " << n;
      scale(threads.stream, a.view(), 0.37f, product.view());
      for (std::int64_t i = 0; i < n; ++i) expected.set(i, static_cast<float>(a[i]) * 0.37f);
      EXPECT_TRUE(product.bytes() == expected.bytes()) << name_of(dtype) << " " << n;
      auto in_place = a;
      add(threads.stream, in_place.view(), b.view(), in_place.view());
      EXPECT_TRUE(in_place.bytes() == sum.bytes());
    }
}

TEST(Elementwise, FillWritesAllElements) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const auto n : kElementSizes)
      for (const float value : {0.0f, 1.0f, -0.3f}) {
        auto y = TypedValues::random(dtype, {n}, 3);
        TypedValues expected(dtype, {n});
        for (std::int64_t i = 0; i < n; ++i) expected.set(i, value);
        fill(threads.stream, y.view(), value);
        EXPECT_TRUE(y.bytes() == expected.bytes()) << name_of(dtype) << " " << n << " " << value;
      }
  std::vector<std::int32_t> ids(9, 5);
  fill(threads.stream, {ids.data(), DType::i32, {9}}, 0);
  EXPECT_EQ(ids, std::vector<std::int32_t>(9, 0));
  EXPECT_THROW(fill(threads.stream, {ids.data(), DType::i32, {9}}, 1), Error);
}

// fp32 patterns: every high half with low halves around the ties of bf16 and fp16.
std::vector<float> patterns_with_ties() {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; ++high)
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u,
                                    0x8001u, 0xefffu, 0xf000u, 0xf001u, 0xffffu})
      values.push_back(std::bit_cast<float>(high << 16 | low));
  return values;
}

template <class T>
void expect_copies_as_from_float(CpuStream& stream) {
  const auto values = patterns_with_ties();
  const Shape shape{static_cast<std::int64_t>(values.size())};
  std::vector<T> converted(values.size());
  copy(stream, {values.data(), DType::f32, shape}, {converted.data(), dtype_of<T>(), shape});
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(converted[i].bits, from_float<T>(values[i]).bits) << std::hex << std::bit_cast<std::uint32_t>(values[i]);
}

TEST(Copy, RoundsAsBaseDoes) {
  Threads threads(2);
  expect_copies_as_from_float<bf16>(threads.stream);
  expect_copies_as_from_float<f16>(threads.stream);
}

template <class T>
void expect_copies_as_to_float(CpuStream& stream) {
  std::vector<T> values(0x10000);
  for (std::uint32_t i = 0; i < values.size(); ++i) values[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> converted(values.size());
  copy(stream, {values.data(), dtype_of<T>(), {0x10000}}, {converted.data(), DType::f32, {0x10000}});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float expected = to_float(values[i]);
    if (std::isnan(expected))
      ASSERT_TRUE(std::isnan(converted[i])) << std::hex << i;
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(converted[i]), std::bit_cast<std::uint32_t>(expected)) << std::hex << i;
  }
}

TEST(Copy, WidensEveryHalf) {
  Threads threads(2);
  expect_copies_as_to_float<bf16>(threads.stream);
  expect_copies_as_to_float<f16>(threads.stream);
}

TEST(Copy, KeepsBitsOfTheSameType) {
  Threads threads(2);
  std::vector<std::uint16_t> from(0x10000), to(0x10000);
  for (std::uint32_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint16_t>(i);
  copy(threads.stream, {from.data(), DType::f16, {0x10000}}, {to.data(), DType::f16, {0x10000}});
  EXPECT_EQ(from, to);
}

TEST(Dropout, KeepsWhatTheGeneratorSays) {
  Threads threads(2);
  const RngKey key{0x123456789abcdefu};
  for (const DType dtype : kFloatTypes)
    for (const auto n : kElementSizes) {
      const auto x = TypedValues::random(dtype, {n}, 4);
      TypedValues y(dtype, {n}), expected(dtype, {n});
      const float p = 0.3f;
      dropout(threads.stream, x.view(), p, key, y.view());
      for (std::int64_t i = 0; i < n; ++i) {
        const bool keep = uniform(key, static_cast<std::uint64_t>(i)) >= p;
        expected.set(i, keep ? static_cast<float>(x[i]) * (1.0f / (1.0f - p)) : 0.0f);
      }
      ASSERT_TRUE(y.bytes() == expected.bytes()) << name_of(dtype) << " " << n;
    }
}

TEST(Dropout, OfNothingChangesNothing) {
  Threads threads(2);
  const auto x = TypedValues::random(DType::f32, {1001}, 5);
  TypedValues y(DType::f32, {1001});
  dropout(threads.stream, x.view(), 0, {7}, y.view());
  EXPECT_TRUE(x.bytes() == y.bytes());
}

}  // namespace
}  // namespace zeepo
