#include "zeepo/kernels/cuda/sm90/attention.h"

namespace zeepo::cuda::sm90 {

bool takes(int) { return false; }
bool takes(const ConstHeads&) { return false; }
void forward(cudaStream_t, const ConstHeads&, const ConstHeads&, const ConstHeads&, const Heads&, View,
             const AttentionOptions&) {}
void backward(cudaStream_t, const AttentionBackward&, const AttentionOptions&, std::byte*, std::size_t) {}

}  // namespace zeepo::cuda::sm90
