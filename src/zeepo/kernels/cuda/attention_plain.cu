#include "zeepo/kernels/cuda/attention_plain.h"

#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/attention_dropout.h"
#include "zeepo/kernels/cuda/attention_plain_tile.h"
#include "zeepo/kernels/cuda/shared_memory.h"

namespace zeepo::cuda {
namespace {

// One tile holds keys, then values.
template <int columns, int queries, int keys>
constexpr int shared_bytes() {
  return 4 *
         (PlainTile<queries, columns>::kFloats + PlainTile<keys, columns>::kFloats + PlainTile<queries, keys>::kFloats);
}

__device__ float over_row(float x, bool largest) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(~0u, x, step);
    x = largest ? fmaxf(x, other) : x + other;
  }
  return x;
}

template <class T, int columns, int queries, int keys, bool dropout>
__global__ void __launch_bounds__(kPlainThreads) forward_kernel(const __grid_constant__ AttentionForward a) {
  extern __shared__ float4 memory[];
  const PlainTile<queries, columns> q{reinterpret_cast<float*>(memory)};
  const PlainTile<keys, columns> kv_tile{q.data + q.kFloats};
  const PlainTile<queries, keys> weights{kv_tile.data + kv_tile.kFloats};
  const AttentionExtents& x = a.x;
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int b = blockIdx.x / x.heads, h = blockIdx.x % x.heads, kv = h / x.group();
  const int i0 = (gridDim.y - 1 - blockIdx.y) * queries;
  // Blocks of keys stand at multiples of their size, wherever the queries of this call begin.
  const int begin = x.first_key(i0) / keys * keys, end = x.end_key(i0, queries);
  q.load(head_of<T>(a.q, b, h, x.dim), a.q.row_stride, i0, x.queries, x.dim);
  constexpr int kRows = queries / 16;
  float max[kRows], sum[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) max[r] = -INFINITY, sum[r] = 0;
  PlainSums<queries, columns> out;
  out.clear();
  for (int j0 = begin; j0 < end; j0 += keys) {
    kv_tile.load(head_of<T>(a.k, b, kv, x.dim), a.k.row_stride, j0, x.keys, x.dim);
    __syncthreads();
    float products[kRows][keys / 16];
    dot_rows<columns>(products, q, kv_tile, ty, tx);
    KeepFactors keep(x, b, h);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int i = i0 + ty + 16 * r;
      float largest = max[r];
#pragma unroll
      for (int c = 0; c < keys / 16; ++c) {
        float& p = products[r][c];
        p = x.sees(i, j0 + tx + 16 * c) ? p * x.scale : -INFINITY;
        largest = fmaxf(largest, p);
      }
      largest = over_row(largest, true);
      const float shift = largest == -INFINITY ? 0 : largest;
      const float correction = max[r] == largest ? 1 : expf(max[r] - shift);
      float added = 0;
#pragma unroll
      for (int c = 0; c < keys / 16; ++c) {
        float weight = expf(products[r][c] - shift);
        added += weight;
        if constexpr (dropout) weight *= keep(i, j0 + tx + 16 * c);
        weights.row(ty + 16 * r)[tx + 16 * c] = weight;
      }
      sum[r] = sum[r] * correction + over_row(added, false);
      max[r] = largest;
      out.scale_row(r, correction);
    }
    __syncthreads();
    kv_tile.load(head_of<T>(a.v, b, kv, x.dim), a.v.row_stride, j0, x.keys, x.dim);
    __syncthreads();
    out.template add<false>(weights, kv_tile, ty, tx);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = i0 + ty + 16 * r;
    out.scale_row(r, 1 / sum[r]);
    if (a.log_sums && tx == 0 && i < x.queries)
      a.log_sums[(std::int64_t{b} * x.heads + h) * x.queries + i] = max[r] + logf(sum[r]);
  }
  out.store(head_of<T>(a.out, b, h, x.dim), a.out.row_stride, i0, x.queries, x.dim, ty, tx);
}

template <class T, int columns, int queries, int keys, bool dropout>
void launch(cudaStream_t stream, const AttentionForward& a) {
  constexpr int kBytes = shared_bytes<columns, queries, keys>();
  const auto kernel = forward_kernel<T, columns, queries, keys, dropout>;
  allow_shared_bytes(kernel, kBytes, "attention");
  const dim3 grid(a.x.batch * a.x.heads, (a.x.queries + queries - 1) / queries);
  kernel<<<grid, kPlainThreads, kBytes, stream>>>(a);
  check_launch();
}

template <class T, bool dropout>
void launch(cudaStream_t stream, const AttentionForward& a) {
  if (a.x.dim <= 64)
    launch<T, 64, 64, 64, dropout>(stream, a);
  else if (a.x.dim <= 128)
    launch<T, 128, 64, 64, dropout>(stream, a);
  else
    launch<T, 256, 32, 32, dropout>(stream, a);
}

}  // namespace

void attention_plain(cudaStream_t stream, DType dtype, const AttentionForward& a) {
  with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    a.x.dropout > 0 ? launch<T, true>(stream, a) : launch<T, false>(stream, a);
  });
}

}  // namespace zeepo::cuda
