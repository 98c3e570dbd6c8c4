// What every backend's matmul asks of its operands' shapes.
#pragma once

#include "zeepo/kernels/matmul.h"

namespace zeepo {

struct MatmulSizes {
  std::int64_t m, n, k;
};
// Throws Error naming all shapes where a times b does not give c, or the bias does not fit.
MatmulSizes matmul_sizes(ConstView a, ConstView b, ConstView c, const MatmulOptions& options);

}  // namespace zeepo
