// One fp32 matrix product on the calling thread, with row strides: the BLAS call under every product on the CPU.
//
// OpenBLAS is set to one thread at the first call and called from many of ours at once; for given extents it gives the
// same bits on any thread.
#pragma once

#include <cstdint>

#include "zeepo/kernels/matmul.h"

namespace zeepo::cpu {

// A row-major operand; with Transpose::yes the product uses its transpose. `stride` counts elements between rows.
struct Operand {
  const float* data;
  std::int64_t stride;
  Transpose transpose = Transpose::no;
};

// c = alpha · a b + beta · c.   a: (m, k)   b: (k, n)   c: (m, n). With beta 0, c is not read.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Operand a, Operand b, float beta, float* c,
          std::int64_t c_stride);

}  // namespace zeepo::cpu
