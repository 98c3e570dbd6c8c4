// Elements in GPU memory as fp32, one at a time or 16 bytes and more at a time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"
#include "zeepo/device/view.h"

namespace zeepo::cuda {

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }

// Rounds to nearest even, ties included, as base/dtype.h does; a NaN becomes the hardware's one NaN.
template <class T>
__device__ __forceinline__ T narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half narrow<__half>(float x) {
  return __float2half_rn(x);
}

// N neighbours, moved together.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};

template <class T, int N>
__device__ __forceinline__ void widen(const Pack<T, N>& pack, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = widen(pack.at[i]);
}
template <class T, int N>
__device__ __forceinline__ void narrow(const float (&from)[N], Pack<T, N>& pack) {
#pragma unroll
  for (int i = 0; i < N; ++i) pack.at[i] = narrow<T>(from[i]);
}
// Two at a time, in one instruction.
template <int N>
__device__ __forceinline__ void narrow(const float (&from)[N], Pack<__nv_bfloat16, N>& pack) requires(N % 2 == 0) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(from[i], from[i + 1]);
    pack.at[i] = two.x;
    pack.at[i + 1] = two.y;
  }
}
template <int N>
__device__ __forceinline__ void narrow(const float (&from)[N], Pack<__half, N>& pack) requires(N % 2 == 0) {
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    const __half2 two = __floats2half2_rn(from[i], from[i + 1]);
    pack.at[i] = two.x;
    pack.at[i + 1] = two.y;
  }
}

template <int N, class T>
__device__ __forceinline__ const Pack<T, N>& pack_at(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ __forceinline__ void load(const T* from, float (&to)[N]) {
  widen(Pack<T, N>(pack_at<N>(from)), to);
}
template <int N, class T>
__device__ __forceinline__ void store(const float (&from)[N], T* to) {
  Pack<T, N> pack;
  narrow(from, pack);
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

// Calls f with a zero of the GPU's type for `dtype`; throws Error when it is no float.
template <class F>
void with_float_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::f16: return f(__half{});
    case DType::i32:
    case DType::i16:
    case DType::u8: break;
  }
  throw Error("{} elements: the kernel computes on fp32, bf16 and fp16", name_of(dtype));
}
// The same for what is summed up: f gets a zero of `dtype` and one of `sums`, which is that or fp32.
template <class F>
void with_float_and_sum_types(DType dtype, DType sums, const F& f) {
  if (sums != dtype && sums != DType::f32)
    throw Error("sums of {} elements in {}: must be the same type, or fp32", name_of(dtype), name_of(sums));
  with_float_type(dtype, [&](auto zero) {
    if (sums == DType::f32)
      f(zero, float{});
    else
      f(zero, zero);
  });
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
