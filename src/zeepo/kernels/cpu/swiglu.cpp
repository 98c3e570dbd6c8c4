#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/elementwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

void swiglu_rows(ConstView x, View y, std::int64_t begin, std::int64_t end) {
  with_float_type(y.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto n = y.shape[-1];
    for (std::int64_t row = begin; row < end; ++row) {
      const auto *gate = x.as<T>() + row * 2 * n, *up = gate + n;
      auto* out = y.as<T>() + row * n;
      sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
        const auto g = load(gate + i, count);
        store(hn::Mul(hn::Mul(g, sigmoid(g)), load(up + i, count)), out + i, count);
      });
    }
  });
}

void swiglu_backward_rows(ConstView x, ConstView dy, View dx, std::int64_t begin, std::int64_t end) {
  with_float_type(dx.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto n = dy.shape[-1];
    for (std::int64_t row = begin; row < end; ++row) {
      const auto *gate = x.as<T>() + row * 2 * n, *up = gate + n, *gradient = dy.as<T>() + row * n;
      auto *dgate = dx.as<T>() + row * 2 * n, *dup = dgate + n;
      sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
        const auto g = load(gate + i, count), u = load(up + i, count), d = load(gradient + i, count);
        const auto s = sigmoid(g), silu = hn::Mul(g, s);
        const auto slope = hn::MulAdd(silu, hn::Sub(splat(1.0f), s), s);
        store(hn::Mul(hn::Mul(d, u), slope), dgate + i, count);
        store(hn::Mul(d, silu), dup + i, count);
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

HWY_EXPORT(swiglu_rows);
HWY_EXPORT(swiglu_backward_rows);

}  // namespace

void swiglu(CpuStream& stream, ConstView x, View y) {
  stream.pool().for_range(y.shape.rows(), rows_per_task(x.shape[-1]), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_rows)(x, y, begin, end);
  });
}

void swiglu_backward(CpuStream& stream, ConstView x, ConstView dy, View dx) {
  stream.pool().for_range(dy.shape.rows(), rows_per_task(x.shape[-1]), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(swiglu_backward_rows)(x, dy, dx, begin, end);
  });
}

}  // namespace zeepo
#endif
