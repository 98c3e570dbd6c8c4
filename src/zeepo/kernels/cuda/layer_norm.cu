#include "zeepo/kernels/cuda/partial_sums.h"
#include "zeepo/kernels/cuda/reduce.h"
#include "zeepo/kernels/cuda/rows.h"
#include "zeepo/kernels/norm.h"

namespace zeepo {
namespace {

using namespace cuda;

// A block has one row, and keeps it as fp32. Mean and deviation in two passes over it: one pass over squares would
// cancel for rows whose mean is large.
template <int N, class T>
__global__ void __launch_bounds__(512) layer_norm_kernel(const T* x, const T* delta, const T* weight, const T* bias,
                                                         float eps, int n, T* sum, T* y, float* means, float* rstds) {
  extern __shared__ __align__(16) float row[];
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * n;
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  float total = 0;
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
    for (int j = 0; j < N; ++j) total += v[j];
    store<N>(v, row + i);
  }
  const float mean = block_sum(total) / static_cast<float>(n);
  float squares = 0;
  for (int i = first; i < n; i += step) {
    float v[N];
    load<N>(row + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) squares = __fmaf_rn(v[j] - mean, v[j] - mean, squares);
  }
  const float rstd = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(n) + eps);
  if (threadIdx.x == 0) {
    if (means) means[blockIdx.x] = mean;
    if (rstds) rstds[blockIdx.x] = rstd;
  }
  for (int i = first; i < n; i += step) {
    float v[N], w[N], b[N] = {};
    load<N>(row + i, v);
    load<N>(weight + i, w);
    if (bias) load<N>(bias + i, b);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = __fmaf_rn((v[j] - mean) * rstd, w[j], b[j]);
    store<N>(v, y + start + i);
  }
}

// With h = (x − mean)·rstd and g = dy·weight:  dx = rstd·(g − mean(g) − h·mean(g·h)),  dweight += dy·h,  dbias += dy.
// A block has rows blockIdx.x, blockIdx.x + gridDim.x, ... and sums their parts of dweight and dbias in shared memory,
// each thread its own columns.   partials: (blocks, 2, n)
template <int N, class T>
__global__ void __launch_bounds__(512)
    layer_norm_backward_kernel(const T* dy, const T* x, const T* weight, const float* means, const float* rstds,
                               std::int64_t rows, int n, T* dx, bool add, float* partials) {
  extern __shared__ __align__(16) float sums[];  // (2, n)
  float *dweight = sums, *dbias = sums + n;
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  for (int i = first; i < n; i += step)
#pragma unroll
    for (int j = 0; j < N; ++j) dweight[i + j] = dbias[i + j] = 0;
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const std::int64_t start = r * n;
    const float mean = means[r], rstd = rstds[r];
    float sum_g = 0, sum_gh = 0;
    for (int i = first; i < n; i += step) {
      float d[N], h[N], w[N], s[N], b[N];
      load<N>(dy + start + i, d);
      load<N>(x + start + i, h);
      load<N>(weight + i, w);
      load<N>(dweight + i, s);
      load<N>(dbias + i, b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        h[j] = (h[j] - mean) * rstd;
        const float g = d[j] * w[j];
        sum_g += g;
        sum_gh = __fmaf_rn(g, h[j], sum_gh);
        s[j] = __fmaf_rn(d[j], h[j], s[j]);
        b[j] += d[j];
      }
      store<N>(s, dweight + i);
      store<N>(b, dbias + i);
    }
    const float mean_g = block_sum(sum_g) / static_cast<float>(n);
    const float mean_gh = block_sum(sum_gh) / static_cast<float>(n);
    for (int i = first; i < n; i += step) {
      float d[N], h[N], w[N], before[N] = {};
      load<N>(dy + start + i, d);
      load<N>(x + start + i, h);
      load<N>(weight + i, w);
      if (add) load<N>(dx + start + i, before);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float normal = (h[j] - mean) * rstd;
        d[j] = __fmaf_rn(__fmaf_rn(-normal, mean_gh, d[j] * w[j] - mean_g), rstd, before[j]);
      }
      store<N>(d, dx + start + i);
    }
  }
  float* out = partials + static_cast<std::int64_t>(blockIdx.x) * 2 * n;
  for (int i = first; i < n; i += step)
#pragma unroll
    for (int j = 0; j < N; ++j) {
      out[i + j] = dweight[i + j];
      out[n + i + j] = dbias[i + j];
    }
}

}  // namespace

void layer_norm(CudaStream& stream, const LayerNorm& op) {
  const std::int64_t rows = op.y.shape.rows(), n = op.y.shape[-1];
  with_float_type(op.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packed = all_packable(op.x.data, op.delta.data, op.weight.data, op.bias.data, op.sum.data, op.y.data, n);
    with_pack(packed, [&](auto pack) {
      launch_rows(stream, "layer_norm", layer_norm_kernel<pack(), T>, rows, threads_for(n / pack, 512),
                  static_cast<std::size_t>(n) * sizeof(float), op.x.as<T>(), op.delta.as<T>(), op.weight.as<T>(),
                  op.bias.as<T>(), op.eps, static_cast<int>(n), op.sum.as<T>(), op.y.as<T>(), op.mean.as<float>(),
                  op.rstd.as<float>());
    });
  });
}

void layer_norm_backward(CudaStream& stream, const LayerNormBackward& op) {
  const std::int64_t rows = op.dx.shape.rows(), n = op.dx.shape[-1], blocks = row_blocks(rows, n, 2);
  if (rows == 0) return;
  auto* partials = reinterpret_cast<float*>(stream.workspace(static_cast<std::size_t>(blocks * 2 * n) * sizeof(float)));
  with_float_type(op.dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(op.dy.data, op.x.data, op.weight.data, op.dx.data, n), [&](auto pack) {
      launch_rows(stream, "layer_norm_backward", layer_norm_backward_kernel<pack(), T>, blocks,
                  threads_for(n / pack, 512), static_cast<std::size_t>(2 * n) * sizeof(float), op.dy.as<T>(),
                  op.x.as<T>(), op.weight.as<T>(), op.mean.as<float>(), op.rstd.as<float>(), rows, static_cast<int>(n),
                  op.dx.as<T>(), op.write_dx == Write::add, partials);
    });
  });
  if (op.dweight) add_partial_sums(stream, partials, blocks, 2 * n, op.dweight, op.write_dweight);
  if (op.dbias) add_partial_sums(stream, partials + n, blocks, 2 * n, op.dbias, op.write_dbias);
}

}  // namespace zeepo
