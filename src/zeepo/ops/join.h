#pragma once

#include <vector>

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// The elements of all parts, one part after another, in memory of their own.   y: (n)
Tensor join(const std::vector<Tensor>& parts);

}  // namespace zeepo
