#include <cmath>

#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/adam.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/adam_factors.h"
#include "zeepo/kernels/cpu/master_weights-inl.h"
#include "zeepo/kernels/cpu/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// The step of one element, in fp32. Every operation rounds once, as written; a backend that keeps this order gives the
// same bits. The factors are rounded once from fp64 (kernels/adam_factors.h).
//
//   g = grad * grad_factor
//   if (!decoupled) g = fma(decay, p, g)            // decay = weight_decay
//   m = fma(beta1, m, rest1 * g)
//   v = fma(beta2, v, (rest2 * g) * g)
//   if (decoupled) p = fma(-decay, p, p)            // decay = lr * weight_decay
//   p = fma(-step, m / fma(sqrt(v), root, eps), p)  // step = lr / correction1, root = 1 / sqrt(correction2)
//
// `chance` is that of the first element.
template <class G, class W, class M, class V>
void step_range(W weights, const G* grad, M m, V v, std::int64_t n, float grad_factor, const AdamFactors& f,
                const Chance& chance) {
  const auto factor = splat(grad_factor), beta1 = splat(f.beta1), beta2 = splat(f.beta2), rest1 = splat(f.rest1),
             rest2 = splat(f.rest2), root = splat(f.root), eps = splat(f.eps), minus_step = splat(-f.step);
  const auto coupled_decay = splat(f.decoupled ? 0.0f : f.decay), minus_decay = splat(-f.decay);
  const auto step = [&](std::int64_t i, auto count, auto... bits) HWY_ATTR {
    auto p = weights.get(i, count);
    auto g = hn::Mul(load(grad + i, count), factor);
    if (!f.decoupled) g = fused(coupled_decay, p, g);
    const auto first = fused(beta1, m.get(i, count), hn::Mul(rest1, g));
    const auto second = fused(beta2, v.get(i, count), hn::Mul(hn::Mul(rest2, g), g));
    m.put(first, i, count, bits...);
    v.put(second, i, count, bits...);
    if (f.decoupled) p = fused(minus_decay, p, p);
    p = fused(minus_step, hn::Div(first, fused(hn::Sqrt(second), root, eps)), p);
    weights.put(p, i, count);
  };
  if constexpr (M::kNarrow)
    in_moment_blocks(n, chance, m, v, step);
  else
    sweep(n, step);
}

void adam_range(const Weights& weights, ConstView grad, const Moment& m, const Moment& v, float grad_factor,
                const AdamFactors& factors, const Chance& chance, std::int64_t begin, std::int64_t end) {
  with_weights(weights, begin, [&](auto form) HWY_ATTR {
    with_float_type(grad.dtype, [&](auto zero_of_type) HWY_ATTR {
      with_moments(m, v, begin, [&](auto first, auto second) HWY_ATTR {
        step_range(form, grad.as<decltype(zero_of_type)>() + begin, first, second, end - begin, grad_factor, factors,
                   {chance.key, chance.first + begin});
      });
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(adam_range);

}  // namespace

void adam(CpuStream& stream, Weights weights, ConstView grad, const Moment& m, const Moment& v, ConstView control,
          const AdamOptions& options, const Chance& chance) {
  const auto& step = *control.as<StepControl>();
  if (step.skip != 0) return;
  const auto factors = adam_factors(options);
  stream.pool().for_range(grad.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(adam_range)(weights, grad, m, v, step.grad_factor, factors, chance, begin, end);
  });
}

}  // namespace zeepo
#endif
