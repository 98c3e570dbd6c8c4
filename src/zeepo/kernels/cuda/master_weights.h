// The exact fp32 weights of a flat range in their three forms (kernels/optimizer.h), N at a time.
#pragma once

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/optimizer.h"

namespace zeepo::cuda {

struct PlainWeights {
  float* param;

  template <int N>
  __device__ void get(std::int64_t i, float (&x)[N]) const {
    load<N>(param + i, x);
  }
  template <int N>
  __device__ void put(const float (&x)[N], std::int64_t i) const {
    store<N>(x, param + i);
  }
  bool packable() const { return cuda::packable(param); }
};

struct MasterWeights {  // fp16 beside an fp32 master
  __half* param;
  float* master;

  template <int N>
  __device__ void get(std::int64_t i, float (&x)[N]) const {
    load<N>(master + i, x);
  }
  template <int N>
  __device__ void put(const float (&x)[N], std::int64_t i) const {
    store<N>(x, master + i);
    store<N>(x, param + i);
  }
  bool packable() const { return all_packable(static_cast<const void*>(param), static_cast<const void*>(master)); }
};

// bf16 with an int16 remainder: param = (bits + 0x8000) >> 16 and low = the low half of the bits as it stands; adding
// it back, sign extended, undoes the carry.
struct SplitWeights {
  std::uint16_t* param;
  std::uint16_t* low;

  template <int N>
  __device__ void get(std::int64_t i, float (&x)[N]) const {
    const auto highs = *reinterpret_cast<const Pack<std::uint16_t, N>*>(param + i);
    const auto lows = *reinterpret_cast<const Pack<std::uint16_t, N>*>(low + i);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const auto rest = static_cast<std::uint32_t>(std::int32_t{static_cast<std::int16_t>(lows.at[j])});
      x[j] = __uint_as_float((std::uint32_t{highs.at[j]} << 16) + rest);
    }
  }
  template <int N>
  __device__ void put(const float (&x)[N], std::int64_t i) const {
    Pack<std::uint16_t, N> highs, lows;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const std::uint32_t bits = __float_as_uint(x[j]);
      highs.at[j] = static_cast<std::uint16_t>((bits + 0x8000u) >> 16);
      lows.at[j] = static_cast<std::uint16_t>(bits);
    }
    *reinterpret_cast<Pack<std::uint16_t, N>*>(param + i) = highs;
    *reinterpret_cast<Pack<std::uint16_t, N>*>(low + i) = lows;
  }
  bool packable() const { return all_packable(static_cast<const void*>(param), static_cast<const void*>(low)); }
};

// Calls f with the form that the dtypes say, or throws Error.
template <class F>
void with_weights(const Weights& weights, const F& f) {
  const auto& [param, low] = weights;
  if (param.dtype == DType::f32 && !low) return f(PlainWeights{param.as<float>()});
  if (param.dtype == DType::f16 && low && low.dtype == DType::f32)
    return f(MasterWeights{param.as<__half>(), low.as<float>()});
  if (param.dtype == DType::bf16 && low && low.dtype == DType::i16)
    return f(SplitWeights{param.as<std::uint16_t>(), low.as<std::uint16_t>()});
  throw Error("weights in {} with {}{}: must be fp32 alone, bf16 with int16 or fp16 with fp32", name_of(param.dtype),
              low ? "" : "no ", low ? name_of(low.dtype) : "remainder");
}

// step.apply<N>(i) for every pack of n elements, or element.
template <int N, class Step>
__global__ void __launch_bounds__(256) step_kernel(Step step, std::int64_t n) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x) * N;
  if (!step.wanted()) return;
  if (i + N <= n)
    step.template apply<N>(i);
  else
    for (std::int64_t j = i; j < n; ++j) step.template apply<1>(j);
}

template <class Step>
void run_step(CudaStream& stream, const Step& step, std::int64_t n, bool packed) {
  if (n == 0) return;
  with_pack(packed, [&](auto pack) {
    step_kernel<pack(), Step><<<static_cast<unsigned>(pieces(n, 256 * pack)), 256, 0, stream.handle()>>>(step, n);
    check_launch();
  });
}

}  // namespace zeepo::cuda
