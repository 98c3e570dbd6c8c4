// Attention by Hopper's matrix units, for bf16 and fp16. Deterministic: every sum has one owner and one order.
#pragma once

#include <cuda_runtime_api.h>

#include "zeepo/kernels/attention.h"

namespace zeepo::cuda::sm90 {

// Whether the GPU has these units, and the build code for them.
bool takes(int device);
// Whether the kernels take these: 16-bit heads of at most 256, in rows that start at multiples of 16 bytes.
bool takes(const ConstHeads& x);

void forward(cudaStream_t, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out,
             View log_sums, const AttentionOptions&);

// The order of sums depends on the extents and the size of the workspace only. Throws Error when the workspace has no
// room for the rows of one sample.
void backward(cudaStream_t, const AttentionBackward&, const AttentionOptions&, std::byte* workspace,
              std::size_t workspace_bytes);

}  // namespace zeepo::cuda::sm90
