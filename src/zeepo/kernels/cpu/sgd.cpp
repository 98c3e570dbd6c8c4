#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/sgd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/master_weights-inl.h"
#include "zeepo/kernels/cpu/moments-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// The step of one element, in fp32, every operation rounding once as written:
//
//   g = fma(weight_decay, p, grad * grad_factor)
//   b = first_step ? g : fma(momentum, b, g)        // momentum == 0: b = g, and nothing is kept
//   p = fma(-lr, b, p)
//
// `chance` is that of the first element.
template <class G, class W, class B>
void step_range(W weights, const G* grad, B b, std::int64_t n, float grad_factor, const SgdOptions& o,
                const Chance& chance) {
  const auto factor = splat(grad_factor), decay = splat(o.weight_decay), momentum = splat(o.momentum),
             minus_lr = splat(-o.lr);
  const auto step = [&](std::int64_t i, auto count, auto... bits) HWY_ATTR {
    const auto p = weights.get(i, count);
    auto g = fused(decay, p, hn::Mul(load(grad + i, count), factor));
    if (o.momentum != 0) {
      if (!o.first_step) g = fused(momentum, b.get(i, count), g);
      b.put(g, i, count, bits...);
    }
    weights.put(fused(minus_lr, g, p), i, count);
  };
  if constexpr (B::kNarrow)
    in_moment_blocks(n, chance, b, b, step);
  else
    sweep(n, step);
}

void sgd_range(const Weights& weights, ConstView grad, View b, float grad_factor, const SgdOptions& options,
               const Chance& chance, std::int64_t begin, std::int64_t end) {
  with_weights(weights, begin, [&](auto form) HWY_ATTR {
    with_float_type(grad.dtype, [&](auto zero_of_type) HWY_ATTR {
      const auto* gradients = grad.as<decltype(zero_of_type)>() + begin;
      const auto run = [&](auto momentum) HWY_ATTR {
        step_range(form, gradients, momentum, end - begin, grad_factor, options, {chance.key, chance.first + begin});
      };
      if (options.momentum == 0) return run(PlainMoment{nullptr});
      with_momentum(b, begin, run);
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

HWY_EXPORT(sgd_range);

}  // namespace

void sgd(CpuStream& stream, Weights weights, ConstView grad, View b, ConstView control, const SgdOptions& options,
         const Chance& chance) {
  const auto& step = *control.as<StepControl>();
  if (step.skip != 0) return;
  stream.pool().for_range(grad.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(sgd_range)(weights, grad, b, step.grad_factor, options, chance, begin, end);
  });
}

}  // namespace zeepo
#endif
