#include "zeepo/kernels/cuda/map.h"
#include "zeepo/kernels/cuda/math.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

using cuda::sigmoid;

// 0.5·x·(1 + tanh(u)) with u = √(2/π)·(x + 0.044715·x³), written x·sigmoid(2u), as on the CPU.
struct GeluTanh {
  static constexpr float kTwiceRoot = 1.5957691216057308f, kCubic = 0.044715f;

  static __device__ float gate(float x, float square) {
    return sigmoid(kTwiceRoot * x * __fmaf_rn(square, kCubic, 1.0f));
  }
  static __device__ float value(float x) { return x * gate(x, x * x); }
  static __device__ float slope(float x) {
    const float square = x * x, s = gate(x, square);
    const float inner = __fmaf_rn(square, 3 * kCubic * kTwiceRoot, kTwiceRoot);  // d(2u)/dx
    return __fmaf_rn(x * inner * s, 1.0f - s, s);
  }
};

struct GeluErf {
  static __device__ float value(float x) { return x * normcdff(x); }
  static __device__ float slope(float x) {
    return __fmaf_rn(x * 0.39894228040143268f, cuda::exponential(-0.5f * x * x), normcdff(x));
  }
};

struct Relu {
  static __device__ float value(float x) { return x < 0 ? 0.0f : x; }  // NaN stays NaN
  static __device__ float slope(float x) { return x > 0 ? 1.0f : 0.0f; }
};

struct Silu {
  static __device__ float value(float x) { return x * sigmoid(x); }
  static __device__ float slope(float x) {
    const float s = sigmoid(x);
    return __fmaf_rn(x * s, 1.0f - s, s);
  }
};

template <class F>
struct Value {
  __device__ float operator()(float x) const { return F::value(x); }
};
template <class F>
struct Gradient {
  __device__ float operator()(float x, float dy) const { return dy * F::slope(x); }
};

template <class Run>
void with_activation(Activation activation, const Run& run) {
  switch (activation) {
    case Activation::gelu_tanh: return run(GeluTanh{});
    case Activation::gelu_erf: return run(GeluErf{});
    case Activation::relu: return run(Relu{});
    case Activation::silu: return run(Silu{});
  }
}

}  // namespace

void activate(CudaStream& stream, Activation activation, ConstView x, View y) {
  cuda::with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_activation(activation,
                    [&](auto f) { cuda::map(stream, Value<decltype(f)>{}, y.elements(), y.as<T>(), x.as<T>()); });
  });
}

void activate_backward(CudaStream& stream, Activation activation, ConstView x, ConstView dy, View dx) {
  cuda::with_float_type(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_activation(activation, [&](auto f) {
      cuda::map(stream, Gradient<decltype(f)>{}, dx.elements(), dx.as<T>(), x.as<T>(), dy.as<T>());
    });
  });
}

}  // namespace zeepo
