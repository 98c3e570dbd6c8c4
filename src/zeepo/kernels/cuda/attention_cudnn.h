// Fused attention by cuDNN, where the build found it. A plan for a shape is made when the shape first comes, which
// takes a while, and kept: for training, whose shapes come back, not for the growing lengths of generation.
//
// Forward only. On Hopper cuDNN 9.19's deterministic backward pass keeps the gradients of all queries × keys products,
// and is slower than ours.
#pragma once

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/attention.h"

namespace zeepo::cuda {

// Returns whether cuDNN did it. It leaves alone what has dropout, is not 16 bits wide, has other lengths for queries
// and keys, wants no log_sums, or has no plan within the stream's workspace.
bool attention_cudnn(CudaStream&, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out,
                     View log_sums, const AttentionOptions&);

}  // namespace zeepo::cuda
