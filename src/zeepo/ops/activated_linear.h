// y = f(x) Wᵀ + b: an activation and the linear layer after it as one op, so that on a GPU the product that gives the
// gradient of f(x) goes on to that of x (kernels/matmul.h). On a CPU the same bits as of the two ops, everywhere the
// same values saved.
#pragma once

#include "zeepo/base/activation.h"
#include "zeepo/ops/linear.h"

namespace zeepo {

// As linear(f(x), weight, bias, layout).
Tensor activated_linear(const Tensor& x, Activation f, const Tensor& weight, const Tensor& bias = {},
                        WeightLayout layout = WeightLayout::out_in);

}  // namespace zeepo
