#include "zeepo/kernels/coded_weights.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/kernels/each_target.h"
#include "tests/kernels/kernel_checks.h"

namespace zeepo {
namespace {

constexpr CodedType kTypes[] = {CodedType::int8, CodedType::int4};

std::vector<float> drawn(std::int64_t n, float deviation = 1) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(deviation * normal({5}, static_cast<std::uint64_t>(i)));
  return values;
}

std::vector<std::byte> rows_of(CpuStream& stream, CodedType type, const std::vector<float>& values) {
  std::vector<std::byte> rows(coded_bytes(type, static_cast<std::int64_t>(values.size())));
  encode_weights(stream, type, values, rows.data());
  return rows;
}

TypedValues expanded(CpuStream& stream, CodedType type, const std::vector<std::byte>& rows, DType dtype = DType::f32) {
  TypedValues values(dtype, {static_cast<std::int64_t>(rows.size() / coded_row_bytes(type)) * kCodedRow});
  expand_weights(stream, type, rows.data(), values.view());
  return values;
}

// Root of the mean square of what is lost, over that of the values.
double lost_share(const std::vector<float>& values, const TypedValues& back) {
  double lost = 0, all = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = values[i] - back[static_cast<std::int64_t>(i)];
    lost += difference * difference;
    all += static_cast<double>(values[i]) * values[i];
  }
  return std::sqrt(lost / all);
}

TEST(CodedWeights, TakeHalfAndAQuarterOfSixteenBits) {
  EXPECT_EQ(coded_bytes(CodedType::int8, 1280), 10u * (128 + 2 * 2));
  EXPECT_EQ(coded_bytes(CodedType::int4, 1280), 10u * (64 + 4 * 2));
  EXPECT_EQ(coded_bytes(CodedType::int4, 1), 72u);
}

TEST(CodedWeights, LoseLittle) {
  Threads cpu(2);
  for (const float deviation : {1.0f, 0.02f, 1e-6f}) {
    const auto values = drawn(1 << 16, deviation);
    for (const CodedType type : kTypes) {
      const auto back = expanded(cpu.stream, type, rows_of(cpu.stream, type, values));
      EXPECT_LT(lost_share(values, back), type == CodedType::int8 ? 0.007 : 0.085) << deviation;
    }
  }
}

TEST(CodedWeights, Int8IsTheNearestCodeOfItsBlock) {
  Threads cpu(1);
  const auto values = drawn(1 << 12);
  const auto back = expanded(cpu.stream, CodedType::int8, rows_of(cpu.stream, CodedType::int8, values));
  for (std::size_t block = 0; block < values.size(); block += 64) {
    float largest = 0;
    for (std::size_t i = block; i < block + 64; ++i) largest = std::max(largest, std::abs(values[i]));
    for (std::size_t i = block; i < block + 64; ++i)
      EXPECT_NEAR(back[static_cast<std::int64_t>(i)], values[i], 1.01 * largest / 127 / 2);
  }
}

TEST(CodedWeights, WholeNumbersOfTheRangeComeBackExactly) {
  Threads cpu(1);
  std::vector<float> values;
  for (int i = 0; i < kCodedRow; ++i) values.push_back(static_cast<float>(i % 16 - 8));
  const auto back = expanded(cpu.stream, CodedType::int4, rows_of(cpu.stream, CodedType::int4, values));
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(back[static_cast<std::int64_t>(i)], values[i]);
}

TEST(CodedWeights, ZerosStayAndWhatIsNotFiniteSpoilsItsBlockAlone) {
  Threads cpu(1);
  for (const CodedType type : kTypes)
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      std::vector<float> values(2 * kCodedRow);
      for (std::size_t i = kCodedRow; i < values.size(); ++i) values[i] = 1;
      values[kCodedRow] = bad;
      const auto back = expanded(cpu.stream, type, rows_of(cpu.stream, type, values));
      const std::int64_t block = coded_block(type);
      for (std::int64_t i = 0; i < back.elements(); ++i) {
        if (i < kCodedRow)
          EXPECT_EQ(back[i], 0);
        else if (i < kCodedRow + block)
          EXPECT_TRUE(std::isnan(back[i]));
        else
          EXPECT_NEAR(back[i], 1, 0.005);  // scales are bf16
      }
    }
}

TEST(CodedWeights, ARowDoesNotDependOnTheOthersNorOnThreads) {
  Threads one(1), three(3);
  const auto values = drawn(300 * kCodedRow - 5);
  for (const CodedType type : kTypes) {
    const auto all = rows_of(one.stream, type, values);
    EXPECT_EQ(rows_of(three.stream, type, values), all);
    for (const std::size_t row : {std::size_t{0}, std::size_t{7}, std::size_t{299}}) {
      const std::size_t begin = row * kCodedRow;
      const std::vector<float> own(
          values.begin() + static_cast<std::ptrdiff_t>(begin),
          values.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kCodedRow, values.size())));
      const auto alone = rows_of(one.stream, type, own);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(),
                             all.begin() + static_cast<std::ptrdiff_t>(row * coded_row_bytes(type))));
    }
  }
}

TEST(CodedWeights, ExpandToTheSameBitsOnEveryInstructionSetAndRoundToEachType) {
  Threads cpu(2);
  const auto values = drawn(40 * kCodedRow, 0.3f);
  for (const CodedType type : kTypes) {
    const auto rows = rows_of(cpu.stream, type, values);
    const auto exact = expanded(cpu.stream, type, rows);
    for_each_target([&](const char* target) {
      for (const DType dtype : kFloatTypes) {
        TypedValues rounded(dtype, {exact.elements()});
        for (std::int64_t i = 0; i < exact.elements(); ++i) rounded.set(i, static_cast<float>(exact[i]));
        EXPECT_EQ(expanded(cpu.stream, type, rows, dtype).bytes(), rounded.bytes()) << target << " " << name_of(dtype);
      }
    });
  }
}

}  // namespace
}  // namespace zeepo
