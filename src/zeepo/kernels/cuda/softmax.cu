#include "zeepo/kernels/softmax.h"

#include "zeepo/base/error.h"
#include "zeepo/kernels/cuda/softmax_row.h"

namespace zeepo {
namespace {

using namespace cuda;

template <int N, class T>
__global__ void __launch_bounds__(1024) softmax_kernel(const T* x, int n, T* y) {
  const KeptRow<T> from{x + static_cast<std::int64_t>(blockIdx.x) * n, nullptr, 0};
  y += static_cast<std::int64_t>(blockIdx.x) * n;
  const RowSum row = row_sum<N>(from, n);
  const float factor = 1.0f / row.sum;
  for_row<N, false>(from, n, [&](int i, const Pack<T, N>& pack) {
    float v[N];
    widen(pack, v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = exponential(v[j] - row.max) * factor;
    store<N>(v, y + i);
  });
}

template <int N, class T>
__global__ void __launch_bounds__(1024) softmax_backward_kernel(const T* y, const T* dy, std::int64_t n, T* dx) {
  y += blockIdx.x * n;
  dy += blockIdx.x * n;
  dx += blockIdx.x * n;
  float sum = 0, v[N], d[N];
  for (std::int64_t i = threadIdx.x * N; i < n; i += blockDim.x * N) {
    load<N>(y + i, v);
    load<N>(dy + i, d);
#pragma unroll
    for (int j = 0; j < N; ++j) sum = __fmaf_rn(v[j], d[j], sum);
  }
  sum = block_sum(sum);
  for (std::int64_t i = threadIdx.x * N; i < n; i += blockDim.x * N) {
    load<N>(y + i, v);
    load<N>(dy + i, d);
#pragma unroll
    for (int j = 0; j < N; ++j) d[j] = v[j] * (d[j] - sum);
    store<N>(d, dx + i);
  }
}

// Thread t adds x[t], x[t + threads], ... in fp64; their sums are added as a tree.
__global__ void __launch_bounds__(1024) sum_kernel(const float* x, std::int64_t n, float factor, float* sum, bool add) {
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < n; i += blockDim.x) total += double{x[i]};
  total = block_sum(total) * double{factor};
  if (threadIdx.x == 0) *sum = static_cast<float>(add ? double{*sum} + total : total);
}

void check_same(const char* op, ConstView a, ConstView b) {
  if (a.dtype != b.dtype || !(a.shape == b.shape))
    throw Error("{}: {} {} and {} {}: must be the same shape and float type", op, name_of(a.dtype), a.shape.str(),
                name_of(b.dtype), b.shape.str());
}

}  // namespace

void softmax(CudaStream& stream, ConstView x, View y) {
  check_same("softmax", x, y);
  const std::int64_t n = x.shape[-1];
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(x.data, y.data, n), [&](auto pack) {
      launch_rows(stream, "softmax", softmax_kernel<pack(), T>, x.shape.rows(), threads_for(n / pack, 1024), 0,
                  x.as<T>(), row_length("softmax", n), y.as<T>());
    });
  });
}

void softmax_backward(CudaStream& stream, ConstView y, ConstView dy, View dx) {
  check_same("softmax_backward", y, dy);
  check_same("softmax_backward", y, dx);
  const std::int64_t n = y.shape[-1];
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(y.data, dy.data, dx.data, n), [&](auto pack) {
      launch_rows(stream, "softmax_backward", softmax_backward_kernel<pack(), T>, y.shape.rows(),
                  threads_for(n / pack, 1024), 0, y.as<T>(), dy.as<T>(), n, dx.as<T>());
    });
  });
}

void sum(CudaStream& stream, ConstView x, float factor, View sum, bool add_to_sum) {
  if (x.dtype != DType::f32 || sum.dtype != DType::f32 || sum.elements() != 1)
    throw Error("sum: {} {} into {} {}: must be fp32 into one fp32", name_of(x.dtype), x.shape.str(),
                name_of(sum.dtype), sum.shape.str());
  sum_kernel<<<1, 1024, 0, stream.handle()>>>(x.as<float>(), x.elements(), factor, sum.as<float>(), add_to_sum);
  check_launch();
}

}  // namespace zeepo
