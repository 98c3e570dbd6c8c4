#include "zeepo/kernels/adam_factors.h"
#include "zeepo/kernels/cuda/master_weights.h"

namespace zeepo {
namespace {

using namespace cuda;

// The order of operations is that of kernels/cpu/adam.cpp, each rounding once: the same bits.
template <class G, class W>
struct AdamStep {
  W weights;
  const G* grad;
  float *m, *v;
  const StepControl* control;
  AdamFactors f;

  __device__ bool wanted() const { return control->skip == 0; }
  template <int N>
  __device__ void apply(std::int64_t i) const {
    float p[N], g[N], first[N], second[N];
    weights.get(i, p);
    load<N>(grad + i, g);
    load<N>(m + i, first);
    load<N>(v + i, second);
    const float factor = control->grad_factor;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      float d = __fmul_rn(g[j], factor);
      if (!f.decoupled) d = __fmaf_rn(f.decay, p[j], d);
      first[j] = __fmaf_rn(f.beta1, first[j], __fmul_rn(f.rest1, d));
      second[j] = __fmaf_rn(f.beta2, second[j], __fmul_rn(__fmul_rn(f.rest2, d), d));
      if (f.decoupled) p[j] = __fmaf_rn(-f.decay, p[j], p[j]);
      p[j] = __fmaf_rn(-f.step, __fdiv_rn(first[j], __fmaf_rn(__fsqrt_rn(second[j]), f.root, f.eps)), p[j]);
    }
    store<N>(first, m + i);
    store<N>(second, v + i);
    weights.put(p, i);
  }
};

}  // namespace

void adam(CudaStream& stream, Weights weights, ConstView grad, View m, View v, ConstView control,
          const AdamOptions& options) {
  const AdamFactors factors = adam_factors(options);
  with_weights(weights, [&](auto form) {
    with_float_type(grad.dtype, [&](auto zero) {
      using G = decltype(zero);
      const AdamStep<G, decltype(form)> step{
          form, grad.as<G>(), m.as<float>(), v.as<float>(), control.as<StepControl>(), factors};
      run_step(stream, step, grad.elements(),
               form.packable() &&
                   all_packable(grad.data, static_cast<const void*>(m.data), static_cast<const void*>(v.data)));
    });
  });
}

}  // namespace zeepo
