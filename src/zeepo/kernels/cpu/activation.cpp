#include "zeepo/kernels/elementwise.h"

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// 0.5·x·(1 + tanh(u)) with u = √(2/π)·(x + 0.044715·x³), written x·sigmoid(2u): cheaper, and it does not cancel where
// tanh(u) nears −1.
struct GeluTanh {
  static constexpr float kTwiceRoot = 1.5957691216057308f, kCubic = 0.044715f;

  static HWY_INLINE Floats gate(Floats x, Floats square) {
    return sigmoid(hn::Mul(hn::Mul(splat(kTwiceRoot), x), hn::MulAdd(square, splat(kCubic), splat(1.0f))));
  }
  static HWY_INLINE Floats value(Floats x) { return hn::Mul(x, gate(x, hn::Mul(x, x))); }
  static HWY_INLINE Floats slope(Floats x) {
    const auto square = hn::Mul(x, x);
    const auto s = gate(x, square);
    const auto inner = hn::MulAdd(square, splat(3 * kCubic * kTwiceRoot), splat(kTwiceRoot));  // d(2u)/dx
    return hn::MulAdd(hn::Mul(hn::Mul(x, inner), s), hn::Sub(splat(1.0f), s), s);
  }
};

struct GeluErf {
  static HWY_INLINE Floats bell(Floats x) { return exponential(hn::Mul(hn::Mul(x, x), splat(-0.5f))); }
  static HWY_INLINE Floats value(Floats x) { return hn::Mul(x, normal_share(x, bell(x))); }
  static HWY_INLINE Floats slope(Floats x) {
    const auto e = bell(x);
    return hn::MulAdd(hn::Mul(x, splat(0.39894228040143268f)), e, normal_share(x, e));
  }
};

struct Relu {
  static HWY_INLINE Floats value(Floats x) { return hn::IfThenZeroElse(hn::Lt(x, zero()), x); }  // NaN stays NaN
  static HWY_INLINE Floats slope(Floats x) { return hn::IfThenElseZero(hn::Gt(x, zero()), splat(1.0f)); }
};

struct Silu {
  static HWY_INLINE Floats value(Floats x) { return hn::Mul(x, sigmoid(x)); }
  static HWY_INLINE Floats slope(Floats x) {
    const auto s = sigmoid(x);
    return hn::MulAdd(hn::Mul(x, s), hn::Sub(splat(1.0f), s), s);
  }
};

template <class F>
void with_activation(Activation activation, const F& f) {
  switch (activation) {
    case Activation::gelu_tanh: return f(GeluTanh{});
    case Activation::gelu_erf: return f(GeluErf{});
    case Activation::relu: return f(Relu{});
    case Activation::silu: return f(Silu{});
  }
}

void activate_range(Activation activation, ConstView x, View y, std::int64_t begin, std::int64_t end) {
  with_float_type(y.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto* in = x.as<T>() + begin;
    auto* out = y.as<T>() + begin;
    with_activation(activation, [&](auto f) HWY_ATTR {
      sweep(end - begin,
            [&](std::int64_t i, auto count) HWY_ATTR { store(f.value(load(in + i, count)), out + i, count); });
    });
  });
}

void activate_backward_range(Activation activation, ConstView x, ConstView dy, View dx, std::int64_t begin,
                             std::int64_t end) {
  with_float_type(dx.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto *in = x.as<T>() + begin, *gradient = dy.as<T>() + begin;
    auto* out = dx.as<T>() + begin;
    with_activation(activation, [&](auto f) HWY_ATTR {
      sweep(end - begin, [&](std::int64_t i, auto count) HWY_ATTR {
        store(hn::Mul(load(gradient + i, count), f.slope(load(in + i, count))), out + i, count);
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

HWY_EXPORT(activate_range);
HWY_EXPORT(activate_backward_range);

}  // namespace

void activate(CpuStream& stream, Activation activation, ConstView x, View y) {
  stream.pool().for_range(y.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(activate_range)(activation, x, y, begin, end);
  });
}

void activate_backward(CpuStream& stream, Activation activation, ConstView x, ConstView dy, View dx) {
  stream.pool().for_range(dx.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(activate_backward_range)(activation, x, dy, dx, begin, end);
  });
}

}  // namespace zeepo
#endif
