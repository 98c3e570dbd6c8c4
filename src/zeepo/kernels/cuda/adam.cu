#include "zeepo/kernels/cuda/adam_bytes.h"
#include "zeepo/kernels/cuda/adam_element.h"
#include "zeepo/kernels/cuda/master_weights.h"
#include "zeepo/kernels/cuda/moments.h"

namespace zeepo {
namespace {

using namespace cuda;

template <class G, class W, class M, class V>
struct AdamStep {
  W weights;
  const G* grad;
  M m;
  V v;
  const StepControl* control;
  AdamFactors f;
  Chance chance;

  __device__ bool wanted() const { return control->skip == 0; }
  template <int N>
  __device__ void apply(std::int64_t i) const {
    float p[N], g[N], first[N], second[N];
    weights.get(i, p);
    load<N>(grad + i, g);
    m.get(i, first);
    v.get(i, second);
    const float factor = control->grad_factor;
#pragma unroll
    for (int j = 0; j < N; ++j) step_element(f, g[j], factor, p[j], first[j], second[j]);
    m.put(first, i, chance);
    v.put(second, i, chance);
    weights.put(p, i);
  }
};

}  // namespace

void adam(CudaStream& stream, Weights weights, ConstView grad, const Moment& m, const Moment& v, ConstView control,
          const AdamOptions& options, const Chance& chance) {
  check_moments(m, v);
  if (m.values.dtype == DType::u8) return adam_bytes(stream, weights, grad, m, v, control, options, chance);
  const AdamFactors factors = adam_factors(options);
  with_weights(weights, [&](auto form) {
    with_float_type(grad.dtype, [&](auto zero) {
      with_moments(m, v, [&](auto first, auto second) {
        using G = decltype(zero);
        const AdamStep<G, decltype(form), decltype(first), decltype(second)> step{
            form, grad.as<G>(), first, second, control.as<StepControl>(), factors, chance};
        run_step(stream, step, grad.elements(),
                 form.packable() && first.packable() && second.packable() && packable(grad.data));
      });
    });
  });
}

}  // namespace zeepo
