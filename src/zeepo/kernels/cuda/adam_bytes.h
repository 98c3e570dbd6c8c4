// adam() of kernels/optimizer.h with 8-bit moments.
#pragma once

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/optimizer.h"

namespace zeepo::cuda {

// All arrays start at multiples of 16 bytes, as the states of a unit do; else throws Error.
void adam_bytes(CudaStream&, const Weights& weights, ConstView grad, const Moment& m, const Moment& v,
                ConstView control, const AdamOptions&, const Chance&);

}  // namespace zeepo::cuda
