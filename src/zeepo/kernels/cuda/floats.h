// Elements in GPU memory as fp32, one at a time or 16 bytes and more at a time; the bits are those of base/dtype.h.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "zeepo/base/dtype.h"
#include "zeepo/device/view.h"

namespace zeepo::cuda {

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

// Rounds to nearest even. The hardware has one NaN; ours keep their sign, and a bf16 its payload.
template <class T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  if (x != x) return __ushort_as_bfloat16(static_cast<unsigned short>((__float_as_uint(x) >> 16) | 0x40u));
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
  if (x != x) return __ushort_as_half(static_cast<unsigned short>(((__float_as_uint(x) >> 16) & 0x8000u) | 0x7e00u));
  return __float2half_rn(x);
}

// N neighbours, moved together.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

template <int N, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[N]) {
  const auto pack = *reinterpret_cast<const Pack<T, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = widen(pack.at[i]);
}
template <int N, class T>
__device__ __forceinline__ void store(const float (&from)[N], T* to) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(from[i]);
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// How many elements kernels move at a time: 16 bytes of a 16-bit type, 32 of fp32. They need addresses and row lengths
// to match; what does not is moved element by element.
inline constexpr int kPack = 8;
inline bool packable(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }
inline bool packable(std::int64_t n) { return n % kPack == 0; }
template <class... T>
bool all_packable(const T&... x) {
  return (packable(x) && ...);
}

inline constexpr int kWarp = 32;
inline std::int64_t pieces(std::int64_t n, std::int64_t piece) { return (n + piece - 1) / piece; }

// Its own function because nvcc cannot pass a format string through a template.
[[noreturn]] void throw_not_a_float(DType dtype);
// Calls f with a zero of the GPU's type for `dtype`; throws Error when it is no float.
template <class F>
void with_float_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::f16: return f(__half{});
    case DType::i32:
    case DType::i16: break;
  }
  throw_not_a_float(dtype);
}
// Calls f with std::integral_constant kPack or 1.
template <class F>
void with_pack(bool packed, const F& f) {
  if (packed)
    f(std::integral_constant<int, kPack>());
  else
    f(std::integral_constant<int, 1>());
}

}  // namespace zeepo::cuda
