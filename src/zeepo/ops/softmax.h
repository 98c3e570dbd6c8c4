#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// Over the last extent.
Tensor softmax(const Tensor& x);

}  // namespace zeepo
