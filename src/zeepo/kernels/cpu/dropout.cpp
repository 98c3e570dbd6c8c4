#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"
#include "zeepo/kernels/cpu/philox_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// `begin` is a multiple of the grain, so also of what one call of uniforms() gives.
void dropout_range(ConstView x, float p, RngKey key, View y, std::int64_t begin, std::int64_t end) {
  with_float_type(y.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto keep_above = splat(p), factor = splat(1.0f / (1.0f - p));
    HWY_ALIGN float drawn[kMostUniformsAtOnce];
    for (std::int64_t first = begin; first < end; first += uniforms_at_once()) {
      uniforms(key, static_cast<std::uint64_t>(first), drawn);
      const auto* in = x.as<T>() + first;
      auto* out = y.as<T>() + first;
      sweep(std::min(uniforms_at_once(), end - first), [&](std::int64_t i, auto count) HWY_ATTR {
        const auto keep = hn::Ge(load(drawn + i, Whole{}), keep_above);
        store(hn::IfThenElseZero(keep, hn::Mul(load(in + i, count), factor)), out + i, count);
      });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(dropout_range);

}  // namespace

void dropout(CpuStream& stream, ConstView x, float p, RngKey key, View y) {
  stream.pool().for_range(y.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(dropout_range)(x, p, key, y, begin, end);
  });
}

}  // namespace zeepo
#endif
