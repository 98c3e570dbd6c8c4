#include "zeepo/kernels/cuda/partial_sums.h"
#include "zeepo/kernels/cuda/row_in_registers.h"
#include "zeepo/kernels/norm.h"

namespace zeepo {
namespace {

using namespace cuda;

// Mean and deviation in two passes over the row in registers: one pass over squares would cancel for rows whose mean is
// large.
template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kMostRowThreads, 2)
    layer_norm_kernel(const T* x, const T* delta, const T* weight, const T* bias, float eps, std::int64_t rows, int n,
                      T* sum, T* y, float* means, float* rstds) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, start = r * n;
  if (r >= rows) return;
  Pack<T, N> row[kPacks];
  load_sum<N, kPacks>(x, delta, start, n, sum, row);
  float total = 0, squares = 0;
  for_packs<N, kPacks>(n, [&](int p, int) {
    float v[N];
    widen(row[p], v);
#pragma unroll
    for (int j = 0; j < N; ++j) total += v[j];
  });
  const float mean = row_total(total) / static_cast<float>(n);
  for_packs<N, kPacks>(n, [&](int p, int) {
    float v[N];
    widen(row[p], v);
#pragma unroll
    for (int j = 0; j < N; ++j) squares = __fmaf_rn(v[j] - mean, v[j] - mean, squares);
  });
  const float rstd = 1.0f / sqrtf(row_total(squares) / static_cast<float>(n) + eps);
  if (means && threadIdx.x == 0) means[r] = mean;
  if (rstds && threadIdx.x == 0) rstds[r] = rstd;
  for_packs<N, kPacks>(n, [&](int p, int i) {
    float v[N], w[N], b[N] = {};
    widen(row[p], v);
    load<N>(weight + i, w);
    if (bias) load<N>(bias + i, b);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = __fmaf_rn((v[j] - mean) * rstd, w[j], b[j]);
    store<N>(v, y + start + i);
  });
}

// With h = (x − mean)·rstd and g = dy·weight:  dx = rstd·(g − mean(g) − h·mean(g·h)),  dweight += dy·h,  dbias += dy.
// Rows and sums are shared out as in rms_norm_backward.   partials: (blocks, 2, n)
template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    layer_norm_backward_kernel(const T* dy, const T* x, const T* weight, const float* means, const float* rstds,
                               std::int64_t rows, int n, T* dx, bool add, float* partials) {
  extern __shared__ __align__(16) float room[];  // (blockDim.y, n)
  float dweight[kPacks][N] = {}, dbias[kPacks][N] = {};
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows;
       r += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const std::int64_t start = r * n;
    Pack<T, N> row[kPacks], gradient[kPacks], before[kPacks] = {};
    load_row<N, kPacks>(x + start, n, row);
    load_row<N, kPacks>(dy + start, n, gradient);
    if (add) load_row<N, kPacks>(dx + start, n, before);
    const float mean = means[r], rstd = rstds[r];
    float sum_g = 0, sum_gh = 0;
    for_packs<N, kPacks>(n, [&](int p, int i) {
      float d[N], h[N], w[N];
      widen(gradient[p], d);
      widen(row[p], h);
      load<N>(weight + i, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        h[j] = (h[j] - mean) * rstd;
        const float g = d[j] * w[j];
        sum_g += g;
        sum_gh = __fmaf_rn(g, h[j], sum_gh);
        dweight[p][j] = __fmaf_rn(d[j], h[j], dweight[p][j]);
        dbias[p][j] += d[j];
      }
    });
    const float mean_g = row_total(sum_g) / static_cast<float>(n);
    const float mean_gh = row_total(sum_gh) / static_cast<float>(n);
    for_packs<N, kPacks>(n, [&](int p, int i) {
      float d[N], h[N], w[N], old[N];
      widen(gradient[p], d);
      widen(row[p], h);
      load<N>(weight + i, w);
      widen(before[p], old);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float normal = (h[j] - mean) * rstd;
        d[j] = __fmaf_rn(__fmaf_rn(-normal, mean_gh, d[j] * w[j] - mean_g), rstd, old[j]);
      }
      store<N>(d, dx + start + i);
    });
  }
  float* out = partials + static_cast<std::int64_t>(blockIdx.x) * 2 * n;
  add_block_rows(dweight, n, room, out);
  add_block_rows(dbias, n, room, out + n);
}

}  // namespace

void layer_norm(CudaStream& stream, const LayerNormForward& op) {
  const std::int64_t rows = op.y.shape.rows(), n = op.y.shape[-1];
  with_float_type(op.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packed = all_packable(op.x.data, op.delta.data, op.weight.data, op.bias.data, op.sum.data, op.y.data, n);
    with_row_cut_forward("layer_norm", n, sizeof(T), packed, [&](auto pack, auto packs_each, dim3 block) {
      launch_rows(stream, "layer_norm", layer_norm_kernel<pack(), packs_each(), T>, pieces(rows, block.y), block, 0,
                  op.x.as<T>(), op.delta.as<T>(), op.weight.as<T>(), op.bias.as<T>(), op.eps, rows, static_cast<int>(n),
                  op.sum.as<T>(), op.y.as<T>(), op.mean.as<float>(), op.rstd.as<float>());
    });
  });
}

void layer_norm_backward(CudaStream& stream, const LayerNormBackward& op) {
  const std::int64_t rows = op.dx.shape.rows(), n = op.dx.shape[-1];
  if (rows == 0) return;
  with_float_type(op.dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packed = all_packable(op.dy.data, op.x.data, op.weight.data, op.dx.data, n);
    with_row_cut_backward("layer_norm_backward", n, packed, [&](auto pack, auto packs_each, dim3 block) {
      const std::int64_t blocks = row_blocks(pieces(rows, block.y), n, 2, block.x * block.y);
      const auto bytes = static_cast<std::size_t>(2 * n) * sizeof(float);
      auto* partials = reinterpret_cast<float*>(stream.workspace(static_cast<std::size_t>(blocks) * bytes));
      launch_rows(stream, "layer_norm_backward", layer_norm_backward_kernel<pack(), packs_each(), T>, blocks, block,
                  block.y * bytes / 2, op.dy.as<T>(), op.x.as<T>(), op.weight.as<T>(), op.mean.as<float>(),
                  op.rstd.as<float>(), rows, static_cast<int>(n), op.dx.as<T>(), op.write_dx == Write::add, partials);
      if (op.dweight) add_partial_sums(stream, partials, blocks, 2 * n, op.dweight, op.write_dweight);
      if (op.dbias) add_partial_sums(stream, partials + n, blocks, 2 * n, op.dbias, op.write_dbias);
    });
  });
}

}  // namespace zeepo
