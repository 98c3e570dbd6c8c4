// y = x Wᵀ + b.
#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// How the weight is stored: PyTorch's Linear is out_in, GPT-2's Conv1D is in_out.
enum class WeightLayout { out_in, in_out };

// What the products of a pass compute with: operands as they are, or quantised to 8 bits (kernels/fp8.h) for y and the
// gradient of x; that of the weight always as it is. fp8 needs a GPU, bf16 or fp16, and leaves a layer alone whose
// extents are not multiples of 16.
enum class Products { as_stored, fp8 };

// x: (..., in)   weight: (out, in) or (in, out)   bias: (out) or undefined   y: (..., out)
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              WeightLayout layout = WeightLayout::out_in, Products products = Products::as_stored);

}  // namespace zeepo
