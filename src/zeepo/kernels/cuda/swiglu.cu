#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/cuda/math.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// A thread has one pack of y; `packs` in a row, `count` in all.
template <int N, class T>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(const T* x, std::uint32_t packs, std::uint32_t count, T* y) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t n = static_cast<std::int64_t>(packs) * N, gate = i / packs * 2 * n + i % packs * N;
  float g[N], u[N];
  load<N>(x + gate, g);
  load<N>(x + gate + n, u);
#pragma unroll
  for (int j = 0; j < N; ++j) u[j] = g[j] * sigmoid(g[j]) * u[j];
  store<N>(u, y + static_cast<std::int64_t>(i) * N);
}

template <int N, class T>
__global__ void __launch_bounds__(kThreads)
    swiglu_backward_kernel(const T* x, const T* dy, std::uint32_t packs, std::uint32_t count, T* dx) {
  const std::uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t n = static_cast<std::int64_t>(packs) * N, gate = i / packs * 2 * n + i % packs * N;
  float g[N], u[N], d[N];
  load<N>(x + gate, g);
  load<N>(x + gate + n, u);
  load<N>(dy + static_cast<std::int64_t>(i) * N, d);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float s = sigmoid(g[j]), silu = g[j] * s;
    const float slope = __fmaf_rn(silu, 1.0f - s, s);
    g[j] = d[j] * u[j] * slope;
    u[j] = d[j] * silu;
  }
  store<N>(g, dx + gate);
  store<N>(u, dx + gate + n);
}

std::uint32_t pack_count(std::int64_t elements, int pack) {
  if (elements / pack > std::numeric_limits<std::uint32_t>::max())
    throw Error("swiglu: {} elements at once; the kernel counts to 2^32 packs of {}", elements, pack);
  return static_cast<std::uint32_t>(elements / pack);
}

}  // namespace

void swiglu(CudaStream& stream, ConstView x, View y) {
  const std::int64_t n = y.shape[-1];
  if (y.elements() == 0) return;
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(x.data, y.data, n), [&](auto pack) {
      const std::uint32_t count = pack_count(y.elements(), pack);
      swiglu_kernel<pack(), T><<<static_cast<unsigned>(pieces(count, kThreads)), kThreads, 0, stream.handle()>>>(
          x.as<T>(), static_cast<std::uint32_t>(n / pack), count, y.as<T>());
    });
  });
  check_launch();
}

void swiglu_backward(CudaStream& stream, ConstView x, ConstView dy, View dx) {
  const std::int64_t n = dy.shape[-1];
  if (dy.elements() == 0) return;
  with_float_type(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(x.data, dy.data, dx.data, n), [&](auto pack) {
      const std::uint32_t count = pack_count(dy.elements(), pack);
      swiglu_backward_kernel<pack(), T>
          <<<static_cast<unsigned>(pieces(count, kThreads)), kThreads, 0, stream.handle()>>>(
              x.as<T>(), dy.as<T>(), static_cast<std::uint32_t>(n / pack), count, dx.as<T>());
    });
  });
  check_launch();
}

}  // namespace zeepo
