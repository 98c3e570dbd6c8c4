// exp and sigmoid in fp32 from the hardware's powers of two, a few units in the last place from exact.
#pragma once

namespace zeepo::cuda {

__device__ __forceinline__ float exponential(float x) { return exp2f(x * 1.44269504f); }

// 0 below about −88, so that x·sigmoid(x) vanishes there.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + exponential(-x)); }

}  // namespace zeepo::cuda
