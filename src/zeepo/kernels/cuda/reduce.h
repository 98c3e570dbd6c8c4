// Sums and maxima over the threads of a warp or a block, in a fixed order; every thread gets the result. Blocks have
// whole warps, and all of a block's threads call.
#pragma once

#include "zeepo/kernels/cuda/floats.h"

namespace zeepo::cuda {

struct Add {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {  // passes over NaN
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

template <class Op, class T>
__device__ __forceinline__ T warp_reduce(T x, Op op) {
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, apart));
  return x;
}

template <class Op, class T>
__device__ __forceinline__ T block_reduce(T x, T neutral, Op op) {
  __shared__ T parts[kWarp];
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  x = warp_reduce(x, op);
  __syncthreads();  // the parts of the reduction before have been read
  if (lane == 0) parts[warp] = x;
  __syncthreads();
  return warp_reduce(lane < blockDim.x / kWarp ? parts[lane] : neutral, op);
}

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
  return warp_reduce(x, Add{});
}
template <class T>
__device__ __forceinline__ T block_sum(T x) {
  return block_reduce(x, T{}, Add{});
}

}  // namespace zeepo::cuda
