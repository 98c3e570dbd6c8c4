#include "zeepo/kernels/elementwise.h"

#include "zeepo/kernels/cuda/map.h"

namespace zeepo {
namespace {

struct Constant {
  float value;
  __device__ float operator()() const { return value; }
};
struct Same {
  __device__ float operator()(float x) const { return x; }
};
struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
template <class T>
struct RoundedSum {
  __device__ float operator()(float a, float b) const { return cuda::widen(cuda::narrow<T>(a + b)); }
};
struct Product {
  float factor;
  __device__ float operator()(float x) const { return factor * x; }
};
struct ProductWithDevice {
  const float* factor;
  __device__ float operator()(float x) const { return *factor * x; }
};

}  // namespace

void fill(CudaStream& stream, View y, float value) {
  if (value == 0)  // of any type; −0 is stored as 0
    return cuda_check(cudaMemsetAsync(y.data, 0, y.bytes(), stream.handle()));
  cuda::with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::map(stream, Constant{value}, y.elements(), y.as<T>());
  });
}

void copy(CudaStream& stream, ConstView x, View y) {
  if (x.dtype == y.dtype) {
    if (x.data == y.data) return;
    return cuda_check(cudaMemcpyAsync(y.data, x.data, y.bytes(), cudaMemcpyDeviceToDevice, stream.handle()));
  }
  cuda::with_float_type(x.dtype, [&](auto from) {
    cuda::with_float_type(y.dtype, [&](auto to) {
      cuda::map(stream, Same{}, y.elements(), y.as<decltype(to)>(), x.as<decltype(from)>());
    });
  });
}

void add(CudaStream& stream, ConstView a, ConstView b, View y) {
  cuda::with_float_type(y.dtype, [&](auto one) {
    cuda::with_float_type(b.dtype, [&](auto other) {
      using T = decltype(one);
      cuda::map(stream, Sum{}, y.elements(), y.as<T>(), a.as<T>(), b.as<decltype(other)>());
    });
  });
}

void add_rounded(CudaStream& stream, ConstView a, ConstView b, View y) {
  cuda::with_float_type(b.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::map(stream, RoundedSum<T>{}, y.elements(), y.as<float>(), a.as<float>(), b.as<T>());
  });
}

void scale(CudaStream& stream, ConstView x, float factor, View y) {
  cuda::with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::map(stream, Product{factor}, y.elements(), y.as<T>(), x.as<T>());
  });
}

void scale_by(CudaStream& stream, ConstView x, ConstView factor, View y) {
  cuda::with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::map(stream, ProductWithDevice{factor.as<float>()}, y.elements(), y.as<T>(), x.as<T>());
  });
}

}  // namespace zeepo
