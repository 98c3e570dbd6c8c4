// Moments in their narrow forms (kernels/moments.h) on the GPU: the bits of kernels/cpu/moments-inl.h.
#pragma once

#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/moments.h"

namespace zeepo::cuda {

enum class Order { first, second };  // of the moment

template <Order order>
__device__ __forceinline__ std::uint32_t half_of(std::uint32_t chance) {
  return order == Order::first ? chance & 0xffffu : chance >> 16;
}

struct PlainMoment {
  float* values;

  template <int N>
  __device__ void get(std::int64_t i, float (&x)[N]) const {
    load<N>(values + i, x);
  }
  template <int N>
  __device__ void put(const float (&x)[N], std::int64_t i, const Chance&) const {
    store<N>(x, values + i);
  }
  bool packable() const { return cuda::packable(values); }
};

template <Order order>
struct HalfMoment {
  __nv_bfloat16* values;

  template <int N>
  __device__ void get(std::int64_t i, float (&x)[N]) const {
    load<N>(values + i, x);
  }
  // The N elements lie in one block.
  template <int N>
  __device__ void put(const float (&x)[N], std::int64_t i, const Chance& chance) const {
    const std::int64_t at = chance.first + i;
    const RngKey key = block_key(chance.key, at / kMomentBlock);
    Pack<std::uint16_t, N> rounded;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const auto bits = half_of<order>(chance_bits(key, static_cast<std::uint32_t>(at % kMomentBlock) + j));
      rounded.at[j] = static_cast<std::uint16_t>((__float_as_uint(x[j]) + bits) >> 16);
    }
    *reinterpret_cast<Pack<std::uint16_t, N>*>(values + i) = rounded;
  }
  bool packable() const { return cuda::packable(values); }
};

// 8-bit codes of a block with the exponent E.
template <Order order>
struct ByteCode {
  std::uint32_t base;  // the bits of the least number that is not evenly spaced

  __device__ explicit ByteCode(std::uint32_t exponent)
      : base((min(max(exponent, kLeastExponent), kLargestExponent) -
              (order == Order::first ? kFirstMomentSpan : kSecondMomentSpan))
             << 23) {}
  __device__ static std::uint32_t exponent_of(float largest) {
    return min((__float_as_uint(largest) + kRoundUp) >> 23, kLargestExponent);
  }
  __device__ float value(std::uint8_t code) const {
    const std::uint32_t magnitude = order == Order::first ? code & 0x7fu : code;
    const std::uint32_t shifted = (magnitude << kCodeShift) + base;
    const float x = magnitude < 8 ? __fsub_rn(__uint_as_float(shifted), __uint_as_float(base))
                                  : __uint_as_float(shifted - (1u << 23));
    return order == Order::first && (code & 0x80) ? -x : x;
  }
  __device__ std::uint8_t code(float x, std::uint32_t chance) const {
    const float size = fabsf(x);
    const std::uint32_t bits = __float_as_uint(size);
    const std::uint32_t exact =
        bits < base ? __float_as_uint(__fadd_rn(size, __uint_as_float(base))) - base : bits - (base - (1u << 23));
    const std::uint32_t result = (exact + (half_of<order>(chance) << 4)) >> kCodeShift;
    if (order == Order::first) return static_cast<std::uint8_t>(min(result, 0x7fu) | (__float_as_uint(x) >> 31 << 7));
    return static_cast<std::uint8_t>(max(min(result, 0xffu), bits != 0 ? 1u : 0u));
  }
};

// Calls f with the form of both, which are not 8-bit ones.
template <class F>
void with_moments(const Moment& m, const Moment& v, const F& f) {
  if (m.values.dtype == DType::f32) return f(PlainMoment{m.values.as<float>()}, PlainMoment{v.values.as<float>()});
  f(HalfMoment<Order::first>{m.values.as<__nv_bfloat16>()}, HalfMoment<Order::second>{v.values.as<__nv_bfloat16>()});
}
template <class F>
void with_momentum(const View& b, const F& f) {
  check_momentum(b);
  if (b.dtype == DType::f32) return f(PlainMoment{b.as<float>()});
  f(HalfMoment<Order::first>{b.as<__nv_bfloat16>()});
}

}  // namespace zeepo::cuda
