#include "zeepo/kernels/cuda/master_weights.h"
#include "zeepo/kernels/cuda/moments.h"

namespace zeepo {
namespace {

using namespace cuda;

// The order of operations is that of kernels/cpu/sgd.cpp, each rounding once: the same bits.
template <class G, class W, class B>
struct SgdStep {
  W weights;
  const G* grad;
  B b;
  const StepControl* control;
  SgdOptions o;
  Chance chance;

  __device__ bool wanted() const { return control->skip == 0; }
  template <int N>
  __device__ void apply(std::int64_t i) const {
    float p[N], g[N], before[N];
    weights.get(i, p);
    load<N>(grad + i, g);
    const float factor = control->grad_factor;
#pragma unroll
    for (int j = 0; j < N; ++j) g[j] = __fmaf_rn(o.weight_decay, p[j], __fmul_rn(g[j], factor));
    if (o.momentum != 0) {
      if (!o.first_step) {
        b.get(i, before);
#pragma unroll
        for (int j = 0; j < N; ++j) g[j] = __fmaf_rn(o.momentum, before[j], g[j]);
      }
      b.put(g, i, chance);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) p[j] = __fmaf_rn(-o.lr, g[j], p[j]);
    weights.put(p, i);
  }
};

}  // namespace

void sgd(CudaStream& stream, Weights weights, ConstView grad, View b, ConstView control, const SgdOptions& options,
         const Chance& chance) {
  with_weights(weights, [&](auto form) {
    with_float_type(grad.dtype, [&](auto zero) {
      using G = decltype(zero);
      const auto run = [&](auto momentum) {
        const SgdStep<G, decltype(form), decltype(momentum)> step{
            form, grad.as<G>(), momentum, control.as<StepControl>(), options, chance};
        run_step(stream, step, grad.elements(), form.packable() && momentum.packable() && packable(grad.data));
      };
      if (options.momentum == 0) return run(PlainMoment{nullptr});
      with_momentum(b, run);
    });
  });
}

}  // namespace zeepo
