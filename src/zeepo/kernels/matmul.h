// Matrix products. Operands and result share one dtype; sums are fp32.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

enum class Transpose : bool { no, yes };
// What happens to what the output holds already. A 16-bit sum is rounded once, after adding; by cuBLASLt twice, the
// product first: all of its fast kernels for Hopper do.
enum class Write : bool { overwrite, add };

struct MatmulOptions {
  Transpose a = Transpose::no;  // a is stored (k, m)
  Transpose b = Transpose::no;  // b is stored (n, k)
  Write write = Write::overwrite;
  ConstView bias = {};  // (n), added to every row; only with Write::overwrite
};

// c = a b.   a: (m, k)   b: (k, n)   c: (m, n).   Leading extents of a, b and c are folded into rows: x (B, T, k) is
// (B·T, k). How the work is cut depends on m, n and k only. c overlaps neither a nor b.
void matmul(CpuStream&, ConstView a, ConstView b, View c, const MatmulOptions& options = {});
void matmul(CudaStream&, ConstView a, ConstView b, View c, const MatmulOptions& options = {});

// sums[j] = sum over rows of x[i][j].   x: (..., n)   sums: (n)
void sum_rows(CpuStream&, ConstView x, View sums, Write write);
void sum_rows(CudaStream&, ConstView x, View sums, Write write);

}  // namespace zeepo
