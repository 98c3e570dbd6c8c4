#include "zeepo/kernels/cpu/gemm.h"

#include <cblas.h>

namespace zeepo::cpu {
namespace {

CBLAS_TRANSPOSE flag(Transpose transpose) { return transpose == Transpose::yes ? CblasTrans : CblasNoTrans; }

}  // namespace

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, Operand a, Operand b, float beta, float* c,
          std::int64_t c_stride) {
  [[maybe_unused]] static const bool single_threaded = (openblas_set_num_threads(1), true);
  const auto extent = [](std::int64_t x) { return static_cast<blasint>(x); };
  cblas_sgemm(CblasRowMajor, flag(a.transpose), flag(b.transpose), extent(m), extent(n), extent(k), alpha, a.data,
              extent(a.stride), b.data, extent(b.stride), beta, c, extent(c_stride));
}

}  // namespace zeepo::cpu
