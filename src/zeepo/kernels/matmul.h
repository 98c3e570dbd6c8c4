// Matrix products. Operands share one dtype, which the result has too, or it is fp32; sums are fp32.
#pragma once

#include "zeepo/base/activation.h"
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
  // Elements from one stored row to the next, where a or c is some columns of a wider matrix; 0: they are all of it.
  std::int64_t a_stride = 0, c_stride = 0;
  // Where a and b are elements [begin, begin + k) of a longer k: the parts come in order, one call after another, and
  // the last one leaves in c what one product gives, on a CPU to the bit. Bias and write are those of the whole product
  // in every call. c is fp32; `open`, fp32 and of its shape, belongs to these calls until the last.
  struct Part {
    std::int64_t begin = 0, whole = 0;  // 0: a and b are all of it
    View open = {};
  } part = {};
};

// c = a b.   a: (m, k)   b: (k, n)   c: (m, n).   Leading extents of a, b and c are folded into rows: x (B, T, k) is
// (B·T, k). How the work is cut depends on m, n and k only; on a CPU the bits of a row on n and k. c overlaps neither a
// nor b.
void matmul(CpuStream&, ConstView a, ConstView b, View c, const MatmulOptions& options = {});
void matmul(CudaStream&, ConstView a, ConstView b, View c, const MatmulOptions& options = {});
void matmul(DryStream&, ConstView a, ConstView b, View c, const MatmulOptions& options = {});

// c = (a b) · f'(before), all of one type. cuBLASLt takes the tanh form of gelu along: one rounding, not two. Options:
// how b is stored; nothing else.
void matmul_activate_backward(CpuStream&, ConstView a, ConstView b, Activation f, ConstView before, View c,
                              const MatmulOptions& options = {});
void matmul_activate_backward(CudaStream&, ConstView a, ConstView b, Activation f, ConstView before, View c,
                              const MatmulOptions& options = {});
void matmul_activate_backward(DryStream&, ConstView a, ConstView b, Activation f, ConstView before, View c,
                              const MatmulOptions& options = {});

// sums[j] = sum over rows of x[i][j].   x: (..., n)   sums: (n), of x's type or fp32
void sum_rows(CpuStream&, ConstView x, View sums, Write write);
void sum_rows(CudaStream&, ConstView x, View sums, Write write);
void sum_rows(DryStream&, ConstView x, View sums, Write write);

}  // namespace zeepo
