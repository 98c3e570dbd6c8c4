#include "zeepo/kernels/fp8.h"

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

[[noreturn]] void refuse() { throw Error("fp8: matrix products of 8-bit floats are for GPUs; a CPU computes in fp32"); }

}  // namespace

void quantise(CpuStream&, ConstView, Transpose, Fp8Matrix) { refuse(); }

void matmul_fp8(CpuStream&, Fp8Matrix, Fp8Matrix, View, const Fp8MatmulOptions&) { refuse(); }

}  // namespace zeepo
