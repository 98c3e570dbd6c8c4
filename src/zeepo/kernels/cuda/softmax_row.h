// The largest element of a row and the sum of exp(x − max), in one pass by one block.
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

template <int N, class T>
__device__ __forceinline__ RowSum row_sum(const T* x, std::int64_t n) {
  float max = -INFINITY, sum = 0;
  for (std::int64_t i = threadIdx.x * N; i < n; i += blockDim.x * N) {
    float v[N];
    load<N>(x + i, v);
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
  }
  const float of_row = block_reduce(max, -INFINITY, Larger{});
  return {of_row, block_sum(max == -INFINITY ? sum : sum * exponential(max - of_row))};
}

}  // namespace zeepo::cuda
