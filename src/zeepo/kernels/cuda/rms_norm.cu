#include "zeepo/kernels/cuda/partial_sums.h"
#include "zeepo/kernels/cuda/row_in_registers.h"
#include "zeepo/kernels/norm.h"

namespace zeepo {
namespace {

using namespace cuda;

template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kMostRowThreads, 2)
    rms_norm_kernel(const T* x, const T* delta, const T* weight, float eps, std::int64_t rows, int n, T* sum, T* y,
                    float* rstds) {
  const std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y, start = r * n;
  if (r >= rows) return;
  Pack<T, N> row[kPacks];
  load_sum<N, kPacks>(x, delta, start, n, sum, row);
  float squares = 0;
  for_packs<N, kPacks>(n, [&](int p, int) {
    float v[N];
    widen(row[p], v);
#pragma unroll
    for (int j = 0; j < N; ++j) squares = __fmaf_rn(v[j], v[j], squares);
  });
  const float rstd = 1.0f / sqrtf(row_total(squares) / static_cast<float>(n) + eps);
  if (rstds && threadIdx.x == 0) rstds[r] = rstd;
  for_packs<N, kPacks>(n, [&](int p, int i) {
    float v[N], w[N];
    widen(row[p], v);
    load<N>(weight + i, w);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = v[j] * rstd * w[j];
    store<N>(v, y + start + i);
  });
}

// With h = x·rstd and g = dy·weight:  dx = rstd·(g − h·mean(g·h)),  dweight += dy·h. A block goes through every
// gridDim.x-th row (or kWarpRows rows) and sums their parts of dweight in registers, each thread its own columns.
// partials: (blocks, n)
template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kMostRowThreads)
    rms_norm_backward_kernel(const T* dy, const T* x, const T* weight, const float* rstds, std::int64_t rows, int n,
                             T* dx, bool add, float* partials) {
  extern __shared__ __align__(16) float room[];  // (blockDim.y, n)
  float dweight[kPacks][N] = {};
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y; r < rows;
       r += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const std::int64_t start = r * n;
    Pack<T, N> row[kPacks], gradient[kPacks], before[kPacks] = {};
    load_row<N, kPacks>(x + start, n, row);
    load_row<N, kPacks>(dy + start, n, gradient);
    if (add) load_row<N, kPacks>(dx + start, n, before);
    const float rstd = rstds[r];
    float sum_gh = 0;
    for_packs<N, kPacks>(n, [&](int p, int i) {
      float d[N], h[N], w[N];
      widen(gradient[p], d);
      widen(row[p], h);
      load<N>(weight + i, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        h[j] *= rstd;
        sum_gh = __fmaf_rn(d[j] * w[j], h[j], sum_gh);
        dweight[p][j] = __fmaf_rn(d[j], h[j], dweight[p][j]);
      }
    });
    const float mean_gh = row_total(sum_gh) / static_cast<float>(n);
    for_packs<N, kPacks>(n, [&](int p, int i) {
      float d[N], h[N], w[N], old[N];
      widen(gradient[p], d);
      widen(row[p], h);
      load<N>(weight + i, w);
      widen(before[p], old);
#pragma unroll
      for (int j = 0; j < N; ++j) d[j] = __fmaf_rn(__fmaf_rn(-(h[j] * rstd), mean_gh, d[j] * w[j]), rstd, old[j]);
      store<N>(d, dx + start + i);
    });
  }
  add_block_rows(dweight, n, room, partials + static_cast<std::int64_t>(blockIdx.x) * n);
}

}  // namespace

void rms_norm(CudaStream& stream, const RmsNormForward& op) {
  const std::int64_t rows = op.y.shape.rows(), n = op.y.shape[-1];
  with_float_type(op.y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packed = all_packable(op.x.data, op.delta.data, op.weight.data, op.sum.data, op.y.data, n);
    with_row_cut_forward("rms_norm", n, sizeof(T), packed, [&](auto pack, auto packs_each, dim3 block) {
      launch_rows(stream, "rms_norm", rms_norm_kernel<pack(), packs_each(), T>, pieces(rows, block.y), block, 0,
                  op.x.as<T>(), op.delta.as<T>(), op.weight.as<T>(), op.eps, rows, static_cast<int>(n), op.sum.as<T>(),
                  op.y.as<T>(), op.rstd.as<float>());
    });
  });
}

void rms_norm_backward(CudaStream& stream, const RmsNormBackward& op) {
  const std::int64_t rows = op.dx.shape.rows(), n = op.dx.shape[-1];
  if (rows == 0) return;
  with_float_type(op.dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packed = all_packable(op.dy.data, op.x.data, op.weight.data, op.dx.data, n);
    with_row_cut_backward("rms_norm_backward", n, packed, [&](auto pack, auto packs_each, dim3 block) {
      const std::int64_t blocks = row_blocks(pieces(rows, block.y), n, 1, block.x * block.y);
      const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
      auto* partials = reinterpret_cast<float*>(stream.workspace(static_cast<std::size_t>(blocks) * bytes));
      launch_rows(stream, "rms_norm_backward", rms_norm_backward_kernel<pack(), packs_each(), T>, blocks, block,
                  block.y * bytes, op.dy.as<T>(), op.x.as<T>(), op.weight.as<T>(), op.rstd.as<float>(), rows,
                  static_cast<int>(n), op.dx.as<T>(), op.write_dx == Write::add, partials);
      if (op.dweight) add_partial_sums(stream, partials, blocks, n, op.dweight, op.write_dweight);
    });
  });
}

}  // namespace zeepo
