#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// y = a + b, of one shape.
Tensor add(const Tensor& a, const Tensor& b);

}  // namespace zeepo
