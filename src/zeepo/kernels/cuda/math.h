// exp and sigmoid in fp32 from the hardware's powers of two; what is smaller than fp32's normal numbers is 0. A
// relative error of about 2^-22 + |x|·2^-24, the latter since the exponent x·log2(e) is rounded first.
#pragma once

namespace zeepo::cuda {

__device__ __forceinline__ float exponential(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * 1.44269504f));
  return power;
}

// 0 below about −88, so that x·sigmoid(x) vanishes there.
__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + exponential(-x)); }

}  // namespace zeepo::cuda
