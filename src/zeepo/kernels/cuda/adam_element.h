// The Adam step of one weight on the GPU. The order of operations is that of kernels/cpu/adam.cpp, each rounding once:
// the same bits.
#pragma once

#include "zeepo/kernels/adam_factors.h"

namespace zeepo::cuda {

__device__ __forceinline__ void step_element(const AdamFactors& f, float gradient, float factor, float& p, float& m,
                                             float& v) {
  float d = __fmul_rn(gradient, factor);
  if (!f.decoupled) d = __fmaf_rn(f.decay, p, d);
  m = __fmaf_rn(f.beta1, m, __fmul_rn(f.rest1, d));
  v = __fmaf_rn(f.beta2, v, __fmul_rn(__fmul_rn(f.rest2, d), d));
  if (f.decoupled) p = __fmaf_rn(-f.decay, p, p);
  p = __fmaf_rn(-f.step, __fdiv_rn(m, __fmaf_rn(__fsqrt_rn(v), f.root, f.eps)), p);
}

}  // namespace zeepo::cuda
