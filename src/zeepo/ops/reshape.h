#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// The same elements, and memory, with another shape.
Tensor reshape(const Tensor& x, Shape shape);

}  // namespace zeepo
