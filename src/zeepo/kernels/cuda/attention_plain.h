// Attention by ordinary arithmetic in fp32, for any type, layout and head size up to 256: for fp32, and for heads that
// the matrix units do not take. Deterministic: every sum has one owner and one order.
#pragma once

#include <cuda_runtime_api.h>

#include "zeepo/kernels/cuda/attention_arguments.h"

namespace zeepo::cuda {

constexpr int kMaxHeadDim = 256;

void attention_plain(cudaStream_t, DType, const AttentionForward&);
// Needs delta. `shared_bytes` is the shared memory that a block may have: with little of it heads over 128 have smaller
// tiles, and their sums another order.
void attention_plain_backward(cudaStream_t, DType, const AttentionGradients&, int shared_bytes);

// delta = the sum of out · dout of each row.
void attention_delta(cudaStream_t, DType, const AttentionGradients&);

}  // namespace zeepo::cuda
