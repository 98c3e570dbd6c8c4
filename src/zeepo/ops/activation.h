// Functions of one element at a time.
#pragma once

#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

Tensor activate(const Tensor& x, Activation activation);
inline Tensor relu(const Tensor& x) { return activate(x, Activation::relu); }
inline Tensor gelu(const Tensor& x) { return activate(x, Activation::gelu_tanh); }

// silu(gate) · up.   x: (..., 2F), the gate first   y: (..., F)
Tensor swiglu(const Tensor& x);

}  // namespace zeepo
