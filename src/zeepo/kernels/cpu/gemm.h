// One fp32 matrix product on the calling thread, with row strides: for kernels that run many small ones in their tasks.
#pragma once

#include <cstdint>

#include "zeepo/kernels/matmul.h"

namespace zeepo::cpu {

// Each element is one chain of fused multiply-adds over so much of k, and the pieces are added in order.
inline constexpr std::int64_t kGemmDepth = 512;

// A row-major operand; with Transpose::yes the product uses its transpose. `stride` counts elements between rows.
struct Operand {
  const float* data;
  std::int64_t stride;
  Transpose transpose = Transpose::no;
};

// c = a b, or c += a b.   a: (m, k)   b: (k, n)   c: (m, n). When overwritten, c is not read.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand a, Operand b, Write write, float* c,
          std::int64_t c_stride);

}  // namespace zeepo::cpu
