// Rows that the threads of a warp or of a block hold in registers between two uses. A block is (threads of a row,
// rows): short rows take a warp each and need no barrier, long ones a block.
#pragma once

#include "zeepo/kernels/cuda/reduce.h"
#include "zeepo/kernels/cuda/rows.h"

namespace zeepo::cuda {

inline constexpr unsigned kMostRowThreads = 256, kWarpRows = 4;  // rows of a block, where each is a warp's

// Every thread of the row gets the sum.
__device__ __forceinline__ float row_total(float x) { return blockDim.x == kWarp ? warp_sum(x) : block_sum(x); }

// The thread's packs of a row: p-th begins at element (p·threads + thread)·N. f(p, i) for each that is in the row.
template <int N, int kPacks, class F>
__device__ __forceinline__ void for_packs(int n, const F& f) {
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int i = static_cast<int>(p * blockDim.x + threadIdx.x) * N;
    if (i < n) f(p, i);
  }
}

// The thread's packs of the row at `from`, asked for together.
template <int N, int kPacks, class T>
__device__ __forceinline__ void load_row(const T* from, int n, Pack<T, N> (&row)[kPacks]) {
  for_packs<N, kPacks>(n, [&](int p, int i) { row[p] = pack_at<N>(from + i); });
}
// The row at `x`; with `delta`, the sum of the two as it is stored at `sum`: what is normalised is what the backward
// pass will see.
template <int N, int kPacks, class T>
__device__ __forceinline__ void load_sum(const T* x, const T* delta, std::int64_t start, int n, T* sum,
                                         Pack<T, N> (&row)[kPacks]) {
  load_row<N, kPacks>(x + start, n, row);
  if (!delta) return;
  Pack<T, N> added[kPacks];
  load_row<N, kPacks>(delta + start, n, added);
  for_packs<N, kPacks>(n, [&](int p, int i) {
    float v[N], d[N];
    widen(row[p], v);
    widen(added[p], d);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] += d[j];
    narrow(v, row[p]);
    *reinterpret_cast<Pack<T, N>*>(sum + start + i) = row[p];
  });
}

// out[i] = the sum over the block's rows of what their threads hold of column i, in the order of the rows. `room` is
// shared memory, (blockDim.y, n).
template <int N, int kPacks>
__device__ __forceinline__ void add_block_rows(const float (&held)[kPacks][N], int n, float* room, float* out) {
  __syncthreads();
  for_packs<N, kPacks>(n, [&](int p, int i) { store<N>(held[p], room + threadIdx.y * n + i); });
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); i < n;
       i += static_cast<int>(blockDim.x * blockDim.y)) {
    float total = 0;
    for (unsigned row = 0; row < blockDim.y; ++row) total += room[row * n + i];
    out[i] = total;
  }
}

[[noreturn]] inline void throw_row_too_long(const char* op, std::int64_t n, std::int64_t most) {
  throw Error("{}: rows of {} elements; the GPU's kernel takes at most {} as they lie", op, n, most);
}

// Calls f(pack, packs a thread, block) with integral constants for the first two. `pack` is kPack or 1; `packs_each`
// the first of kPacksEach with which a row takes at most `most_threads`, or kMostRowThreads where it is the last.
template <int... kPacksEach, class F>
void with_row_cut(const char* op, std::int64_t n, bool packed, unsigned most_threads, const F& f) {
  const auto cut = [&](auto pack, auto packs_each, bool last) {
    const unsigned most = last ? kMostRowThreads : most_threads;
    const std::int64_t packs = pieces(n, pack);
    unsigned threads = kWarp;
    while (packs > std::int64_t{threads} * packs_each) threads *= 2;
    if (threads <= most)
      f(pack, packs_each, dim3(threads, threads == kWarp ? kWarpRows : 1));
    else if (last)
      throw_row_too_long(op, n, std::int64_t{most} * packs_each * pack);
    return threads <= most;
  };
  if (!packed) {
    cut(std::integral_constant<int, 1>(), std::integral_constant<int, 32>(), true);
    return;
  }
  std::size_t left = sizeof...(kPacksEach);
  (void)(cut(std::integral_constant<int, kPack>(), std::integral_constant<int, kPacksEach>(), --left == 0) || ...);
}

// The forward pass of a norm: a warp where it can hold the row. Eight packs of fp32 would spill.
template <class F>
void with_row_cut_forward(const char* op, std::int64_t n, std::size_t element_bytes, bool packed, const F& f) {
  with_row_cut<4, 8>(op, n, packed, element_bytes == 4 ? kMostRowThreads : kWarp, f);
}
// The backward pass, which holds more of a row: few packs a thread, so that many rows are under way.
template <class F>
void with_row_cut_backward(const char* op, std::int64_t n, bool packed, const F& f) {
  with_row_cut<2, 4, 8>(op, n, packed, kMostRowThreads, f);
}

}  // namespace zeepo::cuda
