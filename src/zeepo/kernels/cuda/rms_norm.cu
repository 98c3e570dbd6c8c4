#include "zeepo/kernels/cuda/partial_sums.h"
#include "zeepo/kernels/cuda/reduce.h"
#include "zeepo/kernels/cuda/rows.h"
#include "zeepo/kernels/norm.h"

namespace zeepo {
namespace {

using namespace cuda;

// A block has one row, and keeps it as fp32 between the sum of its squares and its use.
template <int N, class T>
__global__ void __launch_bounds__(512)
    rms_norm_kernel(const T* x, const T* delta, const T* weight, float eps, int n, T* sum, T* y, float* rstds) {
  extern __shared__ __align__(16) float row[];
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * n;
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  float squares = 0;
  for (int i = first; i < n; i += step) {
    float v[N];
    load<N>(x + start + i, v);
    if (delta) {
      float d[N];
      load<N>(delta + start + i, d);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = widen(narrow<T>(v[j] + d[j]));  // as the backward pass will see it
      store<N>(v, sum + start + i);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) squares = __fmaf_rn(v[j], v[j], squares);
    store<N>(v, row + i);
  }
  const float rstd = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(n) + eps);
  if (rstds && threadIdx.x == 0) rstds[blockIdx.x] = rstd;
  for (int i = first; i < n; i += step) {
    float v[N], w[N];
    load<N>(row + i, v);
    load<N>(weight + i, w);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = v[j] * rstd * w[j];
    store<N>(v, y + start + i);
  }
}

// With h = x·rstd and g = dy·weight:  dx = rstd·(g − h·mean(g·h)),  dweight += dy·h. A block has rows blockIdx.x,
// blockIdx.x + gridDim.x, ... and sums their parts of dweight in shared memory, each thread its own columns.
template <int N, class T>
__global__ void __launch_bounds__(512)
    rms_norm_backward_kernel(const T* dy, const T* x, const T* weight, const float* rstds, std::int64_t rows, int n,
                             T* dx, bool add, float* partials) {
  extern __shared__ __align__(16) float dweight[];
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int i = first; i < n; i += step)
#pragma unroll
    for (int j = 0; j < N; ++j) dweight[i + j] = 0;
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const std::int64_t start = r * n;
    const float rstd = rstds[r];
    float sum_gh = 0;
    for (int i = first; i < n; i += step) {
      float d[N], h[N], w[N], s[N];
      load<N>(dy + start + i, d);
      load<N>(x + start + i, h);
      load<N>(weight + i, w);
      load<N>(dweight + i, s);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        h[j] *= rstd;
        sum_gh = __fmaf_rn(d[j] * w[j], h[j], sum_gh);
        s[j] = __fmaf_rn(d[j], h[j], s[j]);
      }
      store<N>(s, dweight + i);
    }
    const float mean_gh = block_sum(sum_gh) / static_cast<float>(n);
    for (int i = first; i < n; i += step) {
      float d[N], h[N], w[N], before[N] = {};
      load<N>(dy + start + i, d);
      load<N>(x + start + i, h);
      load<N>(weight + i, w);
      if (add) load<N>(dx + start + i, before);
#pragma unroll
      for (int j = 0; j < N; ++j) d[j] = __fmaf_rn(__fmaf_rn(-(h[j] * rstd), mean_gh, d[j] * w[j]), rstd, before[j]);
      store<N>(d, dx + start + i);
    }
  }
  for (int i = first; i < n; i += step)
#pragma unroll
    for (int j = 0; j < N; ++j) partials[static_cast<std::int64_t>(blockIdx.x) * n + i + j] = dweight[i + j];
}

}  // namespace

void rms_norm(CudaStream& stream, const RmsNorm& op) {
  const std::int64_t rows = op.y.shape.rows(), n = op.y.shape[-1];
  with_float_type(op.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(op.x.data, op.delta.data, op.weight.data, op.sum.data, op.y.data, n), [&](auto pack) {
      launch_rows(stream, "rms_norm", rms_norm_kernel<pack(), T>, rows, threads_for(n / pack, 512),
                  static_cast<std::size_t>(n) * sizeof(float), op.x.as<T>(), op.delta.as<T>(), op.weight.as<T>(),
                  op.eps, static_cast<int>(n), op.sum.as<T>(), op.y.as<T>(), op.rstd.as<float>());
    });
  });
}

void rms_norm_backward(CudaStream& stream, const RmsNormBackward& op) {
  const std::int64_t rows = op.dx.shape.rows(), n = op.dx.shape[-1], blocks = row_blocks(rows, n, 1);
  if (rows == 0) return;
  auto* partials = reinterpret_cast<float*>(stream.workspace(static_cast<std::size_t>(blocks * n) * sizeof(float)));
  with_float_type(op.dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(op.dy.data, op.x.data, op.weight.data, op.dx.data, n), [&](auto pack) {
      launch_rows(stream, "rms_norm_backward", rms_norm_backward_kernel<pack(), T>, blocks, threads_for(n / pack, 512),
                  static_cast<std::size_t>(n) * sizeof(float), op.dy.as<T>(), op.x.as<T>(), op.weight.as<T>(),
                  op.rstd.as<float>(), rows, static_cast<int>(n), op.dx.as<T>(), op.write_dx == Write::add, partials);
    });
  });
  if (op.dweight) add_partial_sums(stream, partials, blocks, n, op.dweight, op.write_dweight);
}

}  // namespace zeepo
