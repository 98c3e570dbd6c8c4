// Layer norm and RMS norm over the last extent, alone or together with the residual add before them.
#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// x: (..., n)   weight, bias: (n)
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps);
Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps);

struct AddNorm {
  Tensor sum;         // x + delta
  Tensor normalised;  // norm(sum)
};
AddNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias, float eps);
AddNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, float eps);

}  // namespace zeepo
