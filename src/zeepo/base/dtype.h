// Element types. Arithmetic is always done in fp32; the 16-bit types are storage, converted on the way in and out.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zeepo {

enum class DType : std::uint8_t { f32, bf16, f16, i32, i16, u8 };

constexpr std::size_t size_of(DType dtype) {
  return dtype == DType::u8 ? 1 : dtype == DType::f32 || dtype == DType::i32 ? 4 : 2;
}
constexpr bool is_float(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }
std::string_view name_of(DType dtype);
// "fp32", "bf16", "fp16", and torch's "float32", "bfloat16", "float16". Throws Error for anything else.
DType parse_dtype(std::string_view text);

struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
float to_float(f16 x);

// Round to nearest, ties to even; NaN stays NaN; fp16 overflows to infinity.
template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
template <>
f16 from_float<f16>(float x);

// The first value that `dtype`, a float, does not hold as a finite number: infinite, NaN, or past its range when
// rounded. values.size() where there is none.
std::size_t first_past(DType dtype, std::span<const float> values);

template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::f32;
}
template <>
constexpr DType dtype_of<bf16>() {
  return DType::bf16;
}
template <>
constexpr DType dtype_of<f16>() {
  return DType::f16;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::i32;
}

}  // namespace zeepo
