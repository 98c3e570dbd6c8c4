#include "zeepo/kernels/cuda/master_weights.h"

namespace zeepo {
namespace {

using namespace cuda;

// The order of operations is that of kernels/cpu/sgd.cpp, each rounding once: the same bits.
template <class G, class W>
struct SgdStep {
  W weights;
  const G* grad;
  float* b;
  const StepControl* control;
  SgdOptions o;

  __device__ bool wanted() const { return control->skip == 0; }
  template <int N>
  __device__ void apply(std::int64_t i) const {
    float p[N], g[N], before[N];
    weights.get(i, p);
    load<N>(grad + i, g);
    const float factor = control->grad_factor;
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] = __fmaf_rn(o.weight_decay, p[j], __fmul_rn(g[j], factor));
    if (b) {
      if (!o.first_step) {
        load<N>(b + i, before);
#pragma unroll
        for (int j = 0; j < N; ++j) g[j] = __fmaf_rn(o.momentum, before[j], g[j]);
      }
      store<N>(g, b + i);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = __fmaf_rn(-o.lr, g[j], p[j]);
    weights.put(p, i);
  }
};

}  // namespace

void sgd(CudaStream& stream, Weights weights, ConstView grad, View b, ConstView control, const SgdOptions& options) {
  float* momentum = options.momentum != 0 ? b.as<float>() : nullptr;
  with_weights(weights, [&](auto form) {
    with_float_type(grad.dtype, [&](auto zero) {
      using G = decltype(zero);
      const SgdStep<G, decltype(form)> step{form, grad.as<G>(), momentum, control.as<StepControl>(), options};
      run_step(stream, step, grad.elements(),
               form.packable() && all_packable(grad.data, static_cast<const void*>(momentum)));
    });
  });
}

}  // namespace zeepo
