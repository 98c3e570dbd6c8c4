#include "zeepo/base/dtype.h"

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return "fp32";
    case DType::bf16: return "bf16";
    case DType::f16: return "fp16";
    case DType::i32: return "int32";
    case DType::i16: return "int16";
    case DType::u8: return "uint8";
  }
  return "?";
}

DType parse_dtype(std::string_view text) {
  if (text == "fp32" || text == "float32") return DType::f32;
  if (text == "bf16" || text == "bfloat16") return DType::bf16;
  if (text == "fp16" || text == "float16") return DType::f16;
  throw Error("dtype \"{}\": must be fp32, bf16 or fp16", text);
}

std::size_t first_past(DType dtype, std::span<const float> values) {
  // The least magnitude, as bits, that from_float() makes infinite.
  const std::uint32_t limit = dtype == DType::f16 ? 0x477ff000u : dtype == DType::bf16 ? 0x7f7f8000u : 0x7f800000u;
  const auto past = [limit](float value) { return (std::bit_cast<std::uint32_t>(value) & 0x7fffffffu) >= limit; };
  constexpr std::size_t kBlock = 1024;  // looked at without a branch
  for (std::size_t begin = 0; begin < values.size(); begin += kBlock) {
    const auto block = values.subspan(begin, std::min(kBlock, values.size() - begin));
    std::uint32_t any = 0;
    for (const float value : block) any |= static_cast<std::uint32_t>(past(value));
    if (any != 0) return begin + static_cast<std::size_t>(std::ranges::find_if(block, past) - block.begin());
  }
  return values.size();
}

float to_float(f16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16;
  const std::uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {  // zero or subnormal: the mantissa counts steps of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

template <>
f16 from_float<f16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds past 65504
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 leaves steps of 2^-24 in the low bits, rounded to even
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13))};
}

}  // namespace zeepo
