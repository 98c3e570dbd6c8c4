#include "zeepo/kernels/check_matmul.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {

void matmul_activate_backward(CpuStream& stream, ConstView a, ConstView b, Activation f, ConstView before, View c,
                              const MatmulOptions& options) {
  check_activate_backward(a, before, c, options);
  matmul(stream, a, b, c, options);
  activate_backward(stream, f, before, c, c);
}

}  // namespace zeepo
