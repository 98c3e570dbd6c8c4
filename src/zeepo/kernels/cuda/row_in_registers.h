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

// Calls f(pack, packs a thread, block) with integral constants for the first two.
template <class F>
void with_row_cut(const char* op, std::int64_t n, std::size_t element_bytes, bool packed, const F& f) {
  const auto cut = [&](auto pack, auto packs_each) {
    const std::int64_t packs = pieces(n, pack);
    unsigned threads = kWarp;
    while (packs > std::int64_t{threads} * packs_each) threads *= 2;
    if (threads > kMostRowThreads) throw_row_too_long(op, n, std::int64_t{kMostRowThreads} * packs_each * pack);
    f(pack, packs_each, dim3(threads, threads == kWarp ? kWarpRows : 1));
  };
  if (!packed)
    cut(std::integral_constant<int, 1>(), std::integral_constant<int, 32>());
  else if (n <= (element_bytes == 4 ? kMostRowThreads : kWarp) * 4 * kPack)  // eight packs of fp32 would spill
    cut(std::integral_constant<int, kPack>(), std::integral_constant<int, 4>());
  else
    cut(std::integral_constant<int, kPack>(), std::integral_constant<int, 8>());
}

}  // namespace zeepo::cuda
