#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// In training (see RandomState): each element is zero with probability p, else divided by 1 − p. Otherwise x itself.
Tensor dropout(const Tensor& x, float p);

}  // namespace zeepo
