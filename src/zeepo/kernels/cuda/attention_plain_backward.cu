#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/attention_dropout.h"
#include "zeepo/kernels/cuda/attention_plain.h"
#include "zeepo/kernels/cuda/attention_plain_tile.h"
#include "zeepo/kernels/cuda/shared_memory.h"

namespace zeepo::cuda {
namespace {

// The tiles of one block of queries against one block of as many keys; `weights` is where weights or the gradients of
// products are laid out for a product.
template <int columns, int rows>
struct Tiles {
  using Rows = PlainTile<rows, columns>;
  static constexpr int kBytes = 4 * (4 * Rows::kFloats + PlainTile<rows, rows>::kFloats);
  Rows q, dout, k, v;
  PlainTile<rows, rows> weights;
  __device__ explicit Tiles(float* memory)
      : q{memory},
        dout{q.data + Rows::kFloats},
        k{dout.data + Rows::kFloats},
        v{k.data + Rows::kFloats},
        weights{v.data + Rows::kFloats} {}
};

// The weights of a block, with dropout's factors, and the gradients of its products over scale.
template <class T, int columns, int rows, bool dropout>
struct Block {
  float weights[rows / 16][rows / 16], dproducts[rows / 16][rows / 16];

  __device__ void compute(const AttentionGradients& a, const Tiles<columns, rows>& tiles, int b, int h, int i0, int j0,
                          int ty, int tx) {
    const AttentionExtents& x = a.x;
    dot_rows<columns>(weights, tiles.q, tiles.k, ty, tx);
    dot_rows<columns>(dproducts, tiles.dout, tiles.v, ty, tx);
    KeepFactors keep(x, b, h);
#pragma unroll
    for (int r = 0; r < rows / 16; ++r) {
      const int i = i0 + ty + 16 * r;
      const std::int64_t at = (std::int64_t{b} * x.heads + h) * x.queries + i;
      const bool there = i < x.queries;
      const float log_sum = there ? a.log_sums[at] : 0, delta = there ? a.delta[at] : 0;
#pragma unroll
      for (int c = 0; c < rows / 16; ++c) {
        const int j = j0 + tx + 16 * c;
        const float weight = there && x.sees(i, j) ? expf(weights[r][c] * x.scale - log_sum) : 0;
        float factor = 1;
        if constexpr (dropout) factor = keep(i, j);
        dproducts[r][c] = weight * (factor * dproducts[r][c] - delta);
        weights[r][c] = weight * factor;
      }
    }
  }
};

template <int rows>
__device__ void lay_out(const float (&values)[rows / 16][rows / 16], PlainTile<rows, rows> to, int ty, int tx) {
#pragma unroll
  for (int r = 0; r < rows / 16; ++r)
#pragma unroll
    for (int c = 0; c < rows / 16; ++c) to.row(ty + 16 * r)[tx + 16 * c] = values[r][c];
}

template <class T, int columns, int rows, bool dropout>
__global__ void __launch_bounds__(kPlainThreads) dq_kernel(const __grid_constant__ AttentionGradients a) {
  extern __shared__ float4 memory[];
  const Tiles<columns, rows> tiles(reinterpret_cast<float*>(memory));
  const AttentionExtents& x = a.x;
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int b = blockIdx.x / x.heads, h = blockIdx.x % x.heads, kv = h / x.group();
  const int i0 = (gridDim.y - 1 - blockIdx.y) * rows;
  tiles.q.load(head_of<T>(a.q, b, h, x.dim), a.q.row_stride, i0, x.queries, x.dim);
  tiles.dout.load(head_of<T>(a.dout, b, h, x.dim), a.dout.row_stride, i0, x.queries, x.dim);
  PlainSums<rows, columns> dq;
  dq.clear();
  for (int j0 = x.first_key(i0); j0 < x.end_key(i0, rows); j0 += rows) {
    tiles.k.load(head_of<T>(a.k, b, kv, x.dim), a.k.row_stride, j0, x.keys, x.dim);
    tiles.v.load(head_of<T>(a.v, b, kv, x.dim), a.v.row_stride, j0, x.keys, x.dim);
    __syncthreads();
    Block<T, columns, rows, dropout> block;
    block.compute(a, tiles, b, h, i0, j0, ty, tx);
    lay_out<rows>(block.dproducts, tiles.weights, ty, tx);
    __syncthreads();
    dq.template add<false>(tiles.weights, tiles.k, ty, tx);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < rows / 16; ++r) dq.scale_row(r, x.scale);
  dq.store(head_of<T>(a.dq, b, h, x.dim), a.dq.row_stride, i0, x.queries, x.dim, ty, tx);
}

template <class T, int columns, int rows, bool dropout>
__global__ void __launch_bounds__(kPlainThreads) dkv_kernel(const __grid_constant__ AttentionGradients a) {
  extern __shared__ float4 memory[];
  const Tiles<columns, rows> tiles(reinterpret_cast<float*>(memory));
  const AttentionExtents& x = a.x;
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const int b = blockIdx.x / x.kv_heads, kv = blockIdx.x % x.kv_heads;
  const int j0 = blockIdx.y * rows;
  tiles.k.load(head_of<T>(a.k, b, kv, x.dim), a.k.row_stride, j0, x.keys, x.dim);
  tiles.v.load(head_of<T>(a.v, b, kv, x.dim), a.v.row_stride, j0, x.keys, x.dim);
  PlainSums<rows, columns> dk, dv;
  dk.clear();
  dv.clear();
  for (int h = kv * x.group(); h < (kv + 1) * x.group(); ++h) {
    for (int i0 = x.first_query(j0); i0 < x.end_query(j0, rows); i0 += rows) {
      tiles.q.load(head_of<T>(a.q, b, h, x.dim), a.q.row_stride, i0, x.queries, x.dim);
      tiles.dout.load(head_of<T>(a.dout, b, h, x.dim), a.dout.row_stride, i0, x.queries, x.dim);
      __syncthreads();
      Block<T, columns, rows, dropout> block;
      block.compute(a, tiles, b, h, i0, j0, ty, tx);
      lay_out<rows>(block.weights, tiles.weights, ty, tx);
      __syncthreads();
      dv.template add<true>(tiles.weights, tiles.dout, ty, tx);
      __syncthreads();
      lay_out<rows>(block.dproducts, tiles.weights, ty, tx);
      __syncthreads();
      dk.template add<true>(tiles.weights, tiles.q, ty, tx);
      __syncthreads();
    }
  }
#pragma unroll
  for (int r = 0; r < rows / 16; ++r) dk.scale_row(r, x.scale);
  dk.store(head_of<T>(a.dk, b, kv, x.dim), a.dk.row_stride, j0, x.keys, x.dim, ty, tx);
  dv.store(head_of<T>(a.dv, b, kv, x.dim), a.dv.row_stride, j0, x.keys, x.dim, ty, tx);
}

// A row a warp; the rows of all heads, one after another.
template <class T>
__global__ void delta_kernel(const __grid_constant__ AttentionGradients a) {
  const AttentionExtents& x = a.x;
  const int lane = threadIdx.x % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * (blockDim.x / 32) + threadIdx.x / 32;
  const int head = static_cast<int>(row / x.queries), i = static_cast<int>(row % x.queries);
  const int b = head / x.heads, h = head % x.heads;
  if (b >= x.batch) return;
  const T* out = head_of<T>(a.out, b, h, x.dim) + i * a.out.row_stride;
  const T* dout = head_of<T>(a.dout, b, h, x.dim) + i * a.dout.row_stride;
  float sum = 0;
  for (int d = lane; d < x.dim; d += 32) sum = fmaf(widen(out[d]), widen(dout[d]), sum);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane == 0) a.delta[row] = sum;
}

template <class T, int columns, int rows, bool dropout>
void launch(cudaStream_t stream, const AttentionGradients& a) {
  constexpr int kBytes = Tiles<columns, rows>::kBytes;
  const auto queries = dq_kernel<T, columns, rows, dropout>;
  const auto keys = dkv_kernel<T, columns, rows, dropout>;
  allow_shared_bytes(queries, kBytes, "attention_backward");
  allow_shared_bytes(keys, kBytes, "attention_backward");
  const int blocks = (a.x.queries + rows - 1) / rows;
  queries<<<dim3(a.x.batch * a.x.heads, blocks), kPlainThreads, kBytes, stream>>>(a);
  check_launch();
  keys<<<dim3(a.x.batch * a.x.kv_heads, blocks), kPlainThreads, kBytes, stream>>>(a);
  check_launch();
}

template <class T, bool dropout>
void launch(cudaStream_t stream, const AttentionGradients& a, int shared_bytes) {
  if (a.x.dim <= 64)
    launch<T, 64, 64, dropout>(stream, a);
  else if (a.x.dim <= 128)
    launch<T, 128, 32, dropout>(stream, a);
  else if (Tiles<256, 32>::kBytes <= shared_bytes)
    launch<T, 256, 32, dropout>(stream, a);
  else
    launch<T, 256, 16, dropout>(stream, a);
}

}  // namespace

void attention_plain_backward(cudaStream_t stream, DType dtype, const AttentionGradients& a, int shared_bytes) {
  with_float_type(dtype, [&](auto type) {
    using T = decltype(type);
    a.x.dropout > 0 ? launch<T, true>(stream, a, shared_bytes) : launch<T, false>(stream, a, shared_bytes);
  });
}

void attention_delta(cudaStream_t stream, DType dtype, const AttentionGradients& a) {
  with_float_type(dtype, [&](auto type) {
    constexpr int kRows = 8;
    const std::int64_t rows = std::int64_t{a.x.batch} * a.x.heads * a.x.queries;
    delta_kernel<decltype(type)><<<static_cast<unsigned>(pieces(rows, kRows)), 32 * kRows, 0, stream>>>(a);
    check_launch();
  });
}

}  // namespace zeepo::cuda
