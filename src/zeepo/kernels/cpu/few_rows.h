// Products of a few fp32 rows with a matrix of any float type, on the calling thread: reading the matrix once is all
// the time they take.
//
// Each sum is one chain of fused multiply-adds over the depth, the chain of packed_gemm.h: however few rows there are,
// and however the matrix is stored, the bits are the same. Lanes are columns, so that a matrix with k innermost is
// turned over in registers.
#pragma once

#include <cstdint>

#include "zeepo/base/dtype.h"

namespace zeepo::cpu {

inline constexpr std::int64_t kFewRows = 8;

// sums = a b.   a: (rows, depth)   b: (depth, columns)   sums: (rows, columns), strides in elements.
struct FewRows {
  const float* a;
  std::int64_t a_stride;
  const void* b;
  DType dtype;
  std::int64_t b_stride;
  bool contiguous_k;  // b is stored (columns, depth)
  std::int64_t rows, columns, depth;
  float* sums;
  std::int64_t sums_stride;
  bool open = false;  // go on with the chains that `sums` holds; else they start from zero
};
// At most kFewRows rows.
void multiply(const FewRows&);

}  // namespace zeepo::cpu
