// Products of e4m3 by cuBLASLt: see matmul.cpp for how it thinks. Its algorithm is asked for once a shape and kept.
#include <tuple>

#include "zeepo/kernels/cuda/cublas_lt.h"
#include "zeepo/kernels/fp8.h"

namespace zeepo {
namespace {

using namespace cuda;

struct Product {
  int device;
  std::int64_t m, n, k;
  DType dtype;  // of c
  Write write;
  bool bias, short_sums;

  auto key() const { return std::tie(device, m, n, k, dtype, write, bias, short_sums); }
  bool operator<(const Product& other) const { return key() < other.key(); }
};

Planned plan(CudaStream& stream, const Product& p) {
  Planned planned{make_description(), make_layout(CUDA_R_8F_E4M3, p.m, p.k, p.k),
                  make_layout(CUDA_R_8F_E4M3, p.n, p.k, p.k), make_layout(type_of(p.dtype), p.m, p.n, p.n)};
  set(planned.description, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set(planned.description, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set(planned.description, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(p.short_sums));
  if (p.bias) {
    set(planned.description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(planned.description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.dtype));
  }
  planned.take_algorithm(stream, make_preference(),
                         fmt::format("e4m3 ({}, {}) x ({}, {}) into {}", p.m, p.k, p.k, p.n, name_of(p.dtype)),
                         [](const auto&) { return 0; });
  return planned;
}

bool aligned(const void* data) { return alignment_of(data) >= 16; }

Product checked(CudaStream& stream, const Fp8Matrix& a, const Fp8Matrix& b, View c, const Fp8MatmulOptions& options) {
  const std::int64_t m = a.pairs.shape[0], n = b.pairs.shape[0], k = 2 * a.pairs.shape[1];
  const bool types = a.pairs.dtype == DType::i16 && b.pairs.dtype == DType::i16 &&
                     (c.dtype == DType::bf16 || c.dtype == DType::f16) &&
                     (!options.bias || options.bias.dtype == c.dtype);
  const bool shapes = 2 * b.pairs.shape[1] == k && c.shape.rows() == m && c.shape[-1] == n && k % kFp8Multiple == 0 &&
                      n % kFp8Multiple == 0 &&
                      (!options.bias || (options.bias.elements() == n && options.write == Write::overwrite));
  if (!types || !shapes || !aligned(a.pairs.data) || !aligned(b.pairs.data) || !aligned(c.data) ||
      !aligned(options.bias.data))
    throw Error(
        "matmul_fp8: a {} times bᵀ {}, in pairs, does not give {} c {}: k and n must be multiples of {}, c and the "
        "bias "
        "bf16 or fp16, all aligned",
        a.pairs.shape.str(), b.pairs.shape.str(), name_of(c.dtype), c.shape.str(), kFp8Multiple);
  return {stream.device(), m, n, k, c.dtype, options.write, static_cast<bool>(options.bias), options.short_sums};
}

}  // namespace

void matmul_fp8(CudaStream& stream, Fp8Matrix a, Fp8Matrix b, View c, const Fp8MatmulOptions& options) {
  const Product p = checked(stream, a, b, c, options);
  if (p.m == 0 || p.n == 0) return;
  Planned& planned = kept_plan(p, [&](const Product& product) { return plan(stream, product); });
  set(planned.description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b.factor.data);
  set(planned.description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a.factor.data);
  if (p.bias) set(planned.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, options.bias.data);
  planned.run(stream, a.pairs.data, b.pairs.data, c.data, p.write);
}

}  // namespace zeepo
