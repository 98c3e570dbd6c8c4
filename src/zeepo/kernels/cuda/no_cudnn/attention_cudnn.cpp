#include "zeepo/kernels/cuda/attention_cudnn.h"

namespace zeepo::cuda {

bool attention_cudnn(CudaStream&, const ConstHeads&, const ConstHeads&, const ConstHeads&, const Heads&, View,
                     const AttentionOptions&) {
  return false;
}

}  // namespace zeepo::cuda
