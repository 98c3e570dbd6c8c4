// The largest element of a row and the sum of exp(x − max), in one pass by one block, which may keep the row for the
// next pass.
#pragma once

#include "zeepo/kernels/cuda/math.h"
#include "zeepo/kernels/cuda/reduce.h"
#include "zeepo/kernels/cuda/rows.h"

namespace zeepo::cuda {

// The softmax of x is exp(x − max) / sum. A row of nothing but −inf has max −inf and sum 0; NaN makes the sum NaN.
struct RowSum {
  float max, sum;
};

__device__ __forceinline__ float shift_of(float max) { return max == -INFINITY ? 0.0f : max; }

// Throws Error when a kernel that counts in 32 bits cannot take rows of n.
inline int row_length(const char* op, std::int64_t n) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  if (n > kMost) throw Error("{}: rows of {} elements; the GPU's kernel takes at most {}", op, n, kMost);
  return static_cast<int>(n);
}

// A row and what of its beginning stays in shared memory: each thread finds there the packs that it asked for before.
template <class T>
struct KeptRow {
  const T* x;
  T* kept;
  int kept_elements;  // whole packs
};

// f(i, pack) for each of the thread's packs, of which it asks for four at a time. kKeep: what has room in shared memory
// goes there too; else it comes from there.
template <int N, bool kKeep, class T, class F>
__device__ __forceinline__ void for_row(const KeptRow<T>& row, int n, const F& f) {
  constexpr int kAhead = 4;
  const int stride = static_cast<int>(blockDim.x) * N;
  for (int first = static_cast<int>(threadIdx.x) * N; first < n; first += kAhead * stride) {
    Pack<T, N> packs[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int i = first + a * stride;
      if (i < n) packs[a] = pack_at<N>((kKeep || i >= row.kept_elements ? row.x : row.kept) + i);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int i = first + a * stride;
      if (i >= n) continue;
      if (kKeep && i < row.kept_elements) *reinterpret_cast<Pack<T, N>*>(row.kept + i) = packs[a];
      f(i, packs[a]);
    }
  }
}

template <int N, class T>
__device__ __forceinline__ RowSum row_sum(const KeptRow<T>& row, int n) {
  float max = -INFINITY, sum = 0;
  for_row<N, true>(row, n, [&](int, const Pack<T, N>& pack) {
    float v[N];
    widen(pack, v);
    float larger = max;
#pragma unroll
    for (int j = 0; j < N; ++j) larger = fmaxf(larger, v[j]);
    if (larger > max) {  // the sum so far is of smaller powers now
      sum *= exponential(max - larger);
      max = larger;
    }
    const float shift = shift_of(max);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += exponential(v[j] - shift);
  });
  const float of_row = block_reduce(max, -INFINITY, Larger{});
  return {of_row, block_sum(max == -INFINITY ? sum : sum * exponential(max - of_row))};
}

}  // namespace zeepo::cuda
