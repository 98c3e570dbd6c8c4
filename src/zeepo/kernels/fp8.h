// Matrix products of 8-bit floats (e4m3: 4 bits of exponent, 3 of mantissa), on GPUs: half the bytes of bf16 and twice
// the rate.
//
// A matrix is quantised with one factor: x ≈ factor · q, factor = largest |x| / 448, found on the device. What is not
// finite makes all of a product NaN. The hardware wants both operands with their k along the rows, so that a weight is
// quantised as it is stored for one pass and transposed for the other.
#pragma once

#include "zeepo/kernels/matmul.h"

namespace zeepo {

// q (rows, k), k a multiple of 16, two neighbours in an int16; `factor` fp32: the factor and the largest |x|.
struct Fp8Matrix {
  View pairs;   // int16 (rows, k / 2)
  View factor;  // fp32 (2)
};

inline constexpr std::int64_t kFp8Multiple = 16;  // of the extents of quantised matrices and of c's columns

// Leading extents of x are folded into rows; with Transpose::yes q is (columns of x, rows of x), both multiples of 16.
void quantise(CpuStream&, ConstView x, Transpose transpose, Fp8Matrix q);
void quantise(CudaStream&, ConstView x, Transpose transpose, Fp8Matrix q);
void quantise(DryStream&, ConstView x, Transpose transpose, Fp8Matrix q);

struct Fp8MatmulOptions {
  Write write = Write::overwrite;
  ConstView bias = {};  // (n), of c's type; only with Write::overwrite
  // Sums within the matrix units have fewer than fp32's bits: faster, good enough for a forward pass.
  bool short_sums = false;
};

// c = a bᵀ.   a: (m, k)   b: (n, k)   c: bf16 or fp16 (m, n)
void matmul_fp8(CpuStream&, Fp8Matrix a, Fp8Matrix b, View c, const Fp8MatmulOptions& options);
void matmul_fp8(CudaStream&, Fp8Matrix a, Fp8Matrix b, View c, const Fp8MatmulOptions& options);
void matmul_fp8(DryStream&, Fp8Matrix a, Fp8Matrix b, View c, const Fp8MatmulOptions& options);

}  // namespace zeepo
