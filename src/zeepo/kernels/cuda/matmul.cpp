// Matrix products by cuBLASLt, which thinks in columns: our c = a b, row by row, is its cᵀ = bᵀ aᵀ, and what we call
// transposed it does not, and the other way round.
#include "zeepo/kernels/matmul.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "zeepo/base/error.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/check_matmul.h"

namespace zeepo {
namespace {

using Description = std::unique_ptr<cublasLtMatmulDesc_t, Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayout_t, Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreference_t, Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

// What a product's algorithm depends on: its shape and how its memory is aligned, never how long it took. So the same
// product gives the same bits wherever its operands live.
struct Product {
  int device;
  std::int64_t m, n, k;
  DType dtype;
  Transpose a, b;
  Write write;
  bool bias;
  std::array<std::uint32_t, 4> alignments;  // of a, b, c and bias, in bytes

  auto key() const { return std::tie(device, m, n, k, dtype, a, b, write, bias, alignments); }
  bool operator<(const Product& other) const { return key() < other.key(); }
};

struct Planned {
  Description description;
  Layout a, b, c;  // ours, seen by columns
  cublasLtMatmulAlgo_t algorithm;
  std::size_t workspace_bytes;
};

std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, address == 0 ? 256 : address & -address));
}

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return CUDA_R_32F;
    case DType::bf16: return CUDA_R_16BF;
    case DType::f16: return CUDA_R_16F;
    default: throw Error("matmul: operands of {}: must be of a float type", name_of(dtype));
  }
}

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  cuda_check(cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof value));
}
template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  cuda_check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof value));
}

// A row-major matrix of `columns` columns.
Layout layout(DType dtype, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  cuda_check(cublasLtMatrixLayoutCreate(&made, type_of(dtype), static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), columns));
  return Layout(made);
}

Description describe(const Product& p) {
  cublasLtMatmulDesc_t made = nullptr;
  cuda_check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));  // fp32 operands as they are, no TF32
  Description description(made);
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, p.b == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, p.a == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (p.bias) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(p.dtype));
  }
  return description;
}

Planned plan(CudaStream& stream, const Product& p) {
  const bool ta = p.a == Transpose::yes, tb = p.b == Transpose::yes;
  Planned planned{describe(p),
                  layout(p.dtype, ta ? p.k : p.m, ta ? p.m : p.k),
                  layout(p.dtype, tb ? p.n : p.k, tb ? p.k : p.n),
                  layout(p.dtype, p.m, p.n),
                  {},
                  0};
  cublasLtMatmulPreference_t made = nullptr;
  cuda_check(cublasLtMatmulPreferenceCreate(&made));
  const Preference preference(made);
  const std::size_t most = CudaStream::kWorkspaceBytes;
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most);
  // Pieces of k may be added in fp32 in the workspace, in order; never by atomics, never as rounded to the result's
  // type.
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.alignments[1]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.alignments[0]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.alignments[2]);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.alignments[2]);
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(stream.blas(), planned.description.get(), planned.b.get(), planned.a.get(),
                                     planned.c.get(), planned.c.get(), preference.get(), 1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0)
    throw Error("matmul: cuBLASLt has no algorithm for ({}, {}) x ({}, {}) of {}: {}", p.m, p.k, p.k, p.n,
                name_of(p.dtype), cublasLtGetStatusString(status));
  planned.algorithm = found.algo;
  planned.workspace_bytes = found.workspaceSize;
  return planned;
}

// Each rank is a thread with a stream of its own, so that plans need no lock.
Planned& planned(CudaStream& stream, const Product& p) {
  thread_local std::map<Product, Planned> plans;
  const auto found = plans.find(p);
  return found != plans.end() ? found->second : plans.emplace(p, plan(stream, p)).first->second;
}

Product checked(CudaStream& stream, ConstView a, ConstView b, View c, const MatmulOptions& options) {
  const auto [m, n, k] = matmul_sizes(a, b, c, options);
  if (a.dtype != b.dtype || a.dtype != c.dtype || (options.bias && options.bias.dtype != a.dtype))
    throw Error("matmul: a is {}, b is {}, c is {}: must be the same float type", name_of(a.dtype), name_of(b.dtype),
                name_of(c.dtype));
  return {stream.device(),
          m,
          n,
          k,
          a.dtype,
          options.a,
          options.b,
          options.write,
          static_cast<bool>(options.bias),
          {alignment_of(a.data), alignment_of(b.data), alignment_of(c.data), alignment_of(options.bias.data)}};
}

}  // namespace

void matmul(CudaStream& stream, ConstView a, ConstView b, View c, const MatmulOptions& options) {
  if (options.a_stride || options.c_stride || options.part.whole)
    throw Error("matmul: columns of wider matrices, and a k in parts, are not there on a GPU yet");
  const Product p = checked(stream, a, b, c, options);
  if (p.m == 0 || p.n == 0) return;
  Planned& plan = planned(stream, p);
  if (p.bias) set(plan.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, options.bias.data);
  const float one = 1, before = p.write == Write::add ? 1 : 0;
  cuda_check(cublasLtMatmul(stream.blas(), plan.description.get(), &one, b.data, plan.b.get(), a.data, plan.a.get(),
                            &before, c.data, plan.c.get(), c.data, plan.c.get(), &plan.algorithm,
                            stream.workspace(plan.workspace_bytes), plan.workspace_bytes, stream.handle()));
}

}  // namespace zeepo
