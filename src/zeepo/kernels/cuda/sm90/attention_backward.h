// The kernels of attention's backward pass, one launch each. See sm90/attention.h.
#pragma once

#include "zeepo/kernels/cuda/attention_arguments.h"
#include "zeepo/kernels/cuda/sm90/attention.h"

namespace zeepo::cuda::sm90 {

// What the gradients need of each row of weights: −log2(e) · its log_sum, and the sum of out · dout. (batch · heads,
// row_terms_length) pairs, zero past the last query.
inline std::int64_t row_terms_length(std::int64_t queries) { return (queries + 63) / 64 * 64; }

void query_gradients(cudaStream_t, const AttentionBackward&, const AttentionExtents&, const float2* row_terms);

// dk and dv in `parts` parts of a group: to `partials` (dk's parts, then dv's, each (batch, keys, kv_heads, dim) in
// fp32) or, for one part, to dk and dv.
void key_gradients(cudaStream_t, const AttentionBackward&, const AttentionExtents&, const float2* row_terms, int parts,
                   float* partials);

}  // namespace zeepo::cuda::sm90
