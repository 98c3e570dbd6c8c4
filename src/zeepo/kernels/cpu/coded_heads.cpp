#include "zeepo/kernels/coded_heads.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "zeepo/kernels/cpu/dtype_switch.h"

namespace zeepo {
namespace {

constexpr std::int64_t kRowsAtOnce = 16;  // a task of the pool
constexpr std::uint16_t kNanScale = 0x7fc0;

// To the nearest whole number, ties to even: for less than 2^22.
float rounded(float x) {
  constexpr float kShift = 12582912.0f;
  return (x + kShift) - kShift;
}

template <class T>
void encode_head(const T* from, std::int64_t n, std::int8_t* codes) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < n; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(to_float(from[i])) & 0x7fffffffu);
  const bool finite = largest < 0x7f800000u;
  const auto bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(largest) / 127.0f);
  const std::uint16_t scale = finite ? static_cast<std::uint16_t>((bits + 0xffffu) >> 16) : kNanScale;
  const float unit = to_float(bf16{scale});
  for (std::int64_t i = 0; i < n; ++i)
    codes[i] = finite && scale != 0 ? static_cast<std::int8_t>(rounded(to_float(from[i]) / unit)) : std::int8_t{0};
  std::memcpy(codes + n, &scale, sizeof scale);
}

template <class T>
void expand_head(const std::int8_t* codes, std::int64_t n, T* to) {
  std::uint16_t scale = 0;
  std::memcpy(&scale, codes + n, sizeof scale);
  const float unit = to_float(bf16{scale});
  for (std::int64_t i = 0; i < n; ++i) to[i] = from_float<T>(static_cast<float>(codes[i]) * unit);
}

// f(from, to) of the first element of each head of each row.
template <class From, class To, class F>
void for_heads(CpuStream& stream, ConstHeads from, Heads to, const F& f) {
  stream.pool().for_range(from.batch * from.rows, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / from.rows, t = i % from.rows;
      const From* const in = from.as<From>() + b * from.batch_stride + t * from.row_stride;
      To* const out = to.as<To>() + b * to.batch_stride + t * to.row_stride;
      for (std::int64_t h = 0; h < from.heads; ++h) f(in + h * from.head_dim, out + h * to.head_dim);
    }
  });
}

}  // namespace

void encode_heads(CpuStream& stream, ConstHeads from, Heads codes) {
  with_float_type(from.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_heads<T, std::int8_t>(stream, from, codes,
                              [&](const T* in, std::int8_t* out) { encode_head(in, from.head_dim, out); });
  });
}

void expand_heads(CpuStream& stream, ConstHeads codes, Heads to) {
  with_float_type(to.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_heads<std::int8_t, T>(stream, codes, to,
                              [&](const std::int8_t* in, T* out) { expand_head(in, to.head_dim, out); });
  });
}

}  // namespace zeepo
