// What every backend's matmul asks of its operands' shapes.
#pragma once

#include "zeepo/kernels/matmul.h"

namespace zeepo {

struct MatmulSizes {
  std::int64_t m, n, k;
};
// Throws Error naming all shapes where a times b does not give c, or the bias does not fit.
MatmulSizes matmul_sizes(ConstView a, ConstView b, ConstView c, const MatmulOptions& options);
// Throws Error where `before` is not as c and the operands, or an option is given that matmul_activate_backward does
// not take.
void check_activate_backward(ConstView a, ConstView before, ConstView c, const MatmulOptions& options);

}  // namespace zeepo
