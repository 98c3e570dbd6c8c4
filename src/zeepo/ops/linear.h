// y = x Wᵀ + b.
#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// How the weight is stored: PyTorch's Linear is out_in, GPT-2's Conv1D is in_out.
enum class WeightLayout { out_in, in_out };

// x: (..., in)   weight: (out, in) or (in, out)   bias: (out) or undefined   y: (..., out)
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              WeightLayout layout = WeightLayout::out_in);

}  // namespace zeepo
