#include "zeepo/kernels/cuda/head_rows.h"
#include "zeepo/kernels/cuda/partial_sums.h"
#include "zeepo/kernels/cuda/reduce.h"
#include "zeepo/kernels/cuda/rows.h"
#include "zeepo/kernels/norm.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kWarps = 8;  // of a block; a warp has one head at a time

template <int N, class T>
__global__ void __launch_bounds__(kWarps* kWarp)
    rms_norm_heads_kernel(HeadRows<const T> x, const T* weight, float eps, HeadRows<T> y, float* rstds,
                          std::int64_t count, std::int64_t heads) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (i >= count) return;
  const int n = x.head_dim, first = static_cast<int>(threadIdx.x % kWarp) * N;
  const T* in = x.head(i / heads, i % heads);
  T* out = y.head(i / heads, i % heads);
  float squares = 0, v[N], w[N];
  for (int j = first; j < n; j += kWarp * N) {
    load<N>(in + j, v);
#pragma unroll
    for (int k = 0; k < N; ++k) squares = __fmaf_rn(v[k], v[k], squares);
  }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(n) + eps);
  if (rstds && threadIdx.x % kWarp == 0) rstds[i] = rstd;
  for (int j = first; j < n; j += kWarp * N) {
    load<N>(in + j, v);
    load<N>(weight + j, w);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v[k] * rstd * w[k];
    store<N>(v, out + j);
  }
}

// As rms_norm_backward; a warp sums its part of dweight in its own piece of shared memory, (kWarps, n).
template <int N, class T>
__global__ void __launch_bounds__(kWarps* kWarp)
    rms_norm_heads_backward_kernel(HeadRows<const T> dy, HeadRows<const T> x, const T* weight, const float* rstds,
                                   HeadRows<T> dx, std::int64_t count, std::int64_t heads, float* partials) {
  extern __shared__ __align__(16) float sums[];
  const int n = x.head_dim, first = static_cast<int>(threadIdx.x % kWarp) * N;
  float* dweight = sums + threadIdx.x / kWarp * n;
  for (int j = first; j < n; j += kWarp * N)
#pragma unroll
    for (int k = 0; k < N; ++k) dweight[j + k] = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const std::int64_t row = i / heads, h = i % heads;
    const T *gradient = dy.head(row, h), *in = x.head(row, h);
    T* out = dx.head(row, h);
    const float rstd = rstds[i];
    float sum_gh = 0, d[N], v[N], w[N], s[N];
    for (int j = first; j < n; j += kWarp * N) {
      load<N>(gradient + j, d);
      load<N>(in + j, v);
      load<N>(weight + j, w);
      load<N>(dweight + j, s);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        v[k] *= rstd;
        sum_gh = __fmaf_rn(d[k] * w[k], v[k], sum_gh);
        s[k] = __fmaf_rn(d[k], v[k], s[k]);
      }
      store<N>(s, dweight + j);
    }
    const float mean_gh = warp_sum(sum_gh) / static_cast<float>(n);
    for (int j = first; j < n; j += kWarp * N) {
      load<N>(gradient + j, d);
      load<N>(in + j, v);
      load<N>(weight + j, w);
#pragma unroll
      for (int k = 0; k < N; ++k) d[k] = __fmaf_rn(-(v[k] * rstd), mean_gh, d[k] * w[k]) * rstd;
      store<N>(d, out + j);
    }
  }
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < n; j += kWarps * kWarp) {
    float sum = 0;
    for (int warp = 0; warp < kWarps; ++warp) sum += sums[warp * n + j];
    partials[static_cast<std::int64_t>(blockIdx.x) * n + j] = sum;
  }
}

}  // namespace

void rms_norm_heads(CudaStream& stream, ConstHeads x, ConstView weight, float eps, Heads y, View rstd) {
  const std::int64_t count = y.batch * y.rows * y.heads;
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(packable(x) && packable(y) && packable(weight.data), [&](auto pack) {
      launch_rows(stream, "rms_norm_heads", rms_norm_heads_kernel<pack(), T>, pieces(count, kWarps), kWarps * kWarp, 0,
                  HeadRows<const T>(x), weight.as<T>(), eps, HeadRows<T>(y), rstd.as<float>(), count, y.heads);
    });
  });
}

void rms_norm_heads_backward(CudaStream& stream, ConstHeads dy, ConstHeads x, ConstView weight, ConstView rstd,
                             Heads dx, View dweight, Write write_dweight) {
  const std::int64_t count = dx.batch * dx.rows * dx.heads, n = dx.head_dim;
  const std::int64_t blocks = row_blocks(pieces(count, kWarps), n, 1);
  if (count == 0) return;
  auto* partials = reinterpret_cast<float*>(stream.workspace(static_cast<std::size_t>(blocks * n) * sizeof(float)));
  with_float_type(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(packable(dy) && packable(x) && packable(dx) && packable(weight.data), [&](auto pack) {
      launch_rows(stream, "rms_norm_heads_backward", rms_norm_heads_backward_kernel<pack(), T>, blocks, kWarps * kWarp,
                  static_cast<std::size_t>(kWarps * n) * sizeof(float), HeadRows<const T>(dy), HeadRows<const T>(x),
                  weight.as<T>(), rstd.as<float>(), HeadRows<T>(dx), count, dx.heads, partials);
    });
  });
  if (dweight) add_partial_sums(stream, partials, blocks, n, dweight, write_dweight);
}

}  // namespace zeepo
