#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/cuda/math.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// A thread has one pack of y's row blockIdx.y + k·gridDim.y.
template <int N, class T>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(const T* x, std::int64_t rows, std::int64_t n, T* y) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i >= n) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* gate = x + row * 2 * n + i;
    float g[N], u[N];
    load<N>(gate, g);
    load<N>(gate + n, u);
#pragma unroll
    for (int j = 0; j < N; ++j) u[j] = g[j] * sigmoid(g[j]) * u[j];
    store<N>(u, y + row * n + i);
  }
}

template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const T* x, const T* dy, std::int64_t rows, std::int64_t n, T* dx) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (i >= n) return;
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const std::int64_t place = row * 2 * n + i;
    float g[N], u[N], d[N];
    load<N>(x + place, g);
    load<N>(x + place + n, u);
    load<N>(dy + row * n + i, d);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float s = sigmoid(g[j]), silu = g[j] * s;
      const float slope = __fmaf_rn(silu, 1.0f - s, s);
      g[j] = d[j] * u[j] * slope;
      u[j] = d[j] * silu;
    }
    store<N>(g, dx + place);
    store<N>(u, dx + place + n);
  }
}

dim3 grid_for(std::int64_t rows, std::int64_t packs) {
  constexpr std::int64_t kMostRows = 65535;
  return {static_cast<unsigned>(pieces(packs, kThreads)), static_cast<unsigned>(std::min(rows, kMostRows)), 1};
}

}  // namespace

void swiglu(CudaStream& stream, ConstView x, View y) {
  const std::int64_t rows = y.shape.rows(), n = y.shape[-1];
  if (y.elements() == 0) return;
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(x.data, y.data, n), [&](auto pack) {
      swiglu_kernel<pack(), T>
          <<<grid_for(rows, n / pack), kThreads, 0, stream.handle()>>>(x.as<T>(), rows, n, y.as<T>());
    });
  });
  check_launch();
}

void swiglu_backward(CudaStream& stream, ConstView x, ConstView dy, View dx) {
  const std::int64_t rows = dy.shape.rows(), n = dy.shape[-1];
  if (dy.elements() == 0) return;
  with_float_type(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(x.data, dy.data, dx.data, n), [&](auto pack) {
      swiglu_backward_kernel<pack(), T>
          <<<grid_for(rows, n / pack), kThreads, 0, stream.handle()>>>(x.as<T>(), dy.as<T>(), rows, n, dx.as<T>());
    });
  });
  check_launch();
}

}  // namespace zeepo
