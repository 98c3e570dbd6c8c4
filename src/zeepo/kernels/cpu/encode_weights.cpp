#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "zeepo/base/dtype.h"
#include "zeepo/kernels/coded_weights.h"

namespace zeepo {
namespace {

constexpr std::int64_t kRowsAtOnce = 64;  // a task of the pool
constexpr std::uint16_t kNanScale = 0x7fc0;
constexpr int kLargestBlock = 64;
// How far the scales of int4 that are tried lie from "the largest magnitude becomes code -8", in tenths of a code.
constexpr int kTries = 8;

// To the nearest whole number, ties to even: for less than 2^22.
float rounded(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

struct Block {
  std::uint16_t scale = 0;  // bf16
  std::int8_t codes[kLargestBlock] = {};
};

void round_to_codes(const float* values, int n, float inverse, float low, float high, float* codes) {
  for (int i = 0; i < n; ++i) codes[i] = std::clamp(rounded(values[i] * inverse), low, high);
}

void finish(const float* values, int n, std::uint16_t scale, float low, float high, Block& block) {
  float codes[kLargestBlock];
  const float unit = to_float(bf16{scale});
  block.scale = scale;
  for (int i = 0; i < n; ++i) codes[i] = std::clamp(rounded(values[i] / unit), low, high);
  for (int i = 0; i < n; ++i) block.codes[i] = static_cast<std::int8_t>(codes[i]);
}

// The largest magnitude becomes 127.
Block int8_block(const float* values, int n, float largest) {
  Block block;
  const auto bits = std::bit_cast<std::uint32_t>(largest / 127.0f);
  const auto up = static_cast<std::uint16_t>((bits + 0xffffu) >> 16);
  if (up != 0) finish(values, n, up, -127, 127, block);
  return block;
}

// The scale of each try is the one with the least squared error for its codes; the try with the least error is taken.
Block int4_block(const float* values, int n, float largest) {
  Block block;
  float extreme = 0;
  for (int i = 0; i < n; ++i)
    if (std::abs(values[i]) == largest) {
      extreme = values[i];
      break;
    }
  float best = 0, best_scale = 0;
  for (int t = -kTries; t <= kTries; ++t) {
    const float inverse = -(8.0f + 0.1f * static_cast<float>(t)) / extreme;
    if (!std::isfinite(inverse)) return block;  // far below what matters
    float codes[kLargestBlock];
    round_to_codes(values, n, inverse, -8, 7, codes);
    float with_values = 0, with_codes = 0;
    for (int i = 0; i < n; ++i) {
      with_values += values[i] * codes[i];
      with_codes += codes[i] * codes[i];
    }
    const float gain = with_codes > 0 ? with_values / with_codes * with_values : 0;
    if (gain <= best) continue;
    best = gain;
    best_scale = with_values / with_codes;
  }
  const std::uint16_t scale = from_float<bf16>(best_scale).bits;
  if ((scale & 0x7fffu) != 0) finish(values, n, scale, -8, 7, block);
  return block;
}

Block encoded(CodedType type, const float* values, int n) {
  std::uint32_t largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffffu);
  if (largest >= 0x7f800000u) return {.scale = kNanScale};
  const float magnitude = std::bit_cast<float>(largest);
  if (magnitude == 0) return {};
  return type == CodedType::int8 ? int8_block(values, n, magnitude) : int4_block(values, n, magnitude);
}

void encode_row(CodedType type, const float* values, std::byte* row) {
  const auto block = static_cast<int>(coded_block(type));
  std::int8_t codes[kCodedRow];
  std::uint16_t scales[kCodedRow / 32];
  for (int b = 0; b * block < kCodedRow; ++b) {
    const Block coded = encoded(type, values + b * block, block);
    scales[b] = coded.scale;
    std::copy_n(coded.codes, block, codes + b * block);
  }
  if (type == CodedType::int8) {
    std::memcpy(row, codes, kCodedRow);
  } else {
    for (std::size_t i = 0; i < kCodedRow / 2; ++i)
      row[i] = static_cast<std::byte>((codes[i] & 15) | ((codes[i + kCodedRow / 2] & 15) << 4));
  }
  std::memcpy(row + code_bytes(type), scales, static_cast<std::size_t>(kCodedRow / block) * sizeof(std::uint16_t));
}

}  // namespace

void encode_weights(CpuStream& stream, CodedType type, std::span<const float> values, std::byte* rows) {
  const auto n = static_cast<std::int64_t>(values.size());
  stream.pool().for_range(coded_rows(n), kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t first = r * kCodedRow;
      std::byte* const row = rows + static_cast<std::size_t>(r) * coded_row_bytes(type);
      if (first + kCodedRow <= n) {
        encode_row(type, values.data() + first, row);
        continue;
      }
      float last[kCodedRow] = {};
      std::copy_n(values.data() + first, n - first, last);
      encode_row(type, last, row);
    }
  });
}

}  // namespace zeepo
