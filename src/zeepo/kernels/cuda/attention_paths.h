// The ways in which the CUDA backend computes attention. attention() takes the fastest that takes the problem; tests
// and benchmarks name one.
#pragma once

#include <limits>

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/attention.h"

namespace zeepo::cuda {

enum class AttentionPath {
  cudnn,   // cuDNN's fused attention; forward only
  matrix,  // our kernels on Hopper's matrix units
  plain,   // our kernels in fp32 arithmetic; takes everything
};

// What a backward pass may take. Tests give it less than there is.
struct BackwardRoom {
  std::size_t workspace_bytes = CudaStream::kWorkspaceBytes;
  int shared_bytes = std::numeric_limits<int>::max();  // of a block, where the GPU has as much
};

// Each returns false, having done nothing, when the path does not take the problem.
bool attention_by(AttentionPath, CudaStream&, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                  const Heads& out, View log_sums, const AttentionOptions&);
bool attention_backward_by(AttentionPath, CudaStream&, const AttentionBackward&, const AttentionOptions&,
                           const BackwardRoom& = {});

}  // namespace zeepo::cuda
