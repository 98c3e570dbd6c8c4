// 8-bit moments (kernels/moments.h) as numbers and back, one block at a time: for files, which keep moments element by
// element.
//
// Every number that a code stands for has at most 4 significant bits and is a bf16 number. Coding such numbers again
// keeps each exactly, although the block's exponent may come out smaller.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "zeepo/kernels/moments.h"

namespace zeepo {

enum class MomentOrder { first, second };

inline std::uint32_t moment_base(MomentOrder order, std::uint32_t exponent) {
  const int span = order == MomentOrder::first ? kFirstMomentSpan : kSecondMomentSpan;
  return (std::clamp(exponent, kLeastExponent, kLargestExponent) - static_cast<std::uint32_t>(span)) << 23;
}

inline float decode_moment(MomentOrder order, std::uint8_t code, std::uint8_t exponent) {
  const std::uint32_t base = moment_base(order, exponent);
  const std::uint32_t magnitude = order == MomentOrder::first ? code & 0x7fu : code;
  const std::uint32_t shifted = (magnitude << kCodeShift) + base;
  const float spaced = std::bit_cast<float>(shifted) - std::bit_cast<float>(base);
  const float scaled = std::bit_cast<float>(shifted - (1u << 23));
  const float size = std::min(spaced, scaled);  // each is the smaller one where it holds
  return order == MomentOrder::first && code > 0x7f ? -size : size;
}

// Rounds to the nearest code, and returns the block's exponent.
inline std::uint8_t encode_moments(MomentOrder order, std::span<const float> block, std::span<std::uint8_t> codes) {
  constexpr std::uint32_t kHalf = 1u << (kCodeShift - 1);
  std::uint32_t most = 0;
  for (const float x : block) most = std::max(most, std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
  const std::uint32_t exponent = std::min((most + kRoundUp) >> 23, kLargestExponent);
  const std::uint32_t base = moment_base(order, exponent);
  for (std::size_t i = 0; i < block.size(); ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(block[i]), size = bits & 0x7fffffffu;
    const float sum = std::bit_cast<float>(size) + std::bit_cast<float>(base);
    const auto spaced = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(sum) - base);
    const auto scaled = static_cast<std::int32_t>(size - (base - (1u << 23)));
    const std::uint32_t code = (static_cast<std::uint32_t>(std::max(spaced, scaled)) + kHalf) >> kCodeShift;
    if (order == MomentOrder::first)
      codes[i] = static_cast<std::uint8_t>(std::min(code, 0x7fu) | (bits >> 31 << 7));
    else
      codes[i] = static_cast<std::uint8_t>(std::max(std::min(code, 0xffu), size != 0 ? 1u : 0u));
  }
  return static_cast<std::uint8_t>(exponent);
}

}  // namespace zeepo
