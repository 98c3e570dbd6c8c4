// Convolution and pooling over images.   x: (N, C, H, W)
#pragma once

#include "zeepo/kernels/conv.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

// weight: (O, C, Kh, Kw)   bias: (O) or undefined   y: (N, O, ...)
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});

// The largest of each size × size window; what is left over at the right and below is dropped.
Tensor max_pool2d(const Tensor& x, std::int64_t size);

}  // namespace zeepo
