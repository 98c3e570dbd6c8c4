// What the products by cuBLASLt share: its handles as values, attributes, how memory is aligned, and plans that are
// made once a product and kept.
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo::cuda {

using Description = std::unique_ptr<cublasLtMatmulDesc_t, Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using Layout = std::unique_ptr<cublasLtMatrixLayout_t, Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreference_t, Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

inline std::uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(256, address == 0 ? 256 : address & -address));
}

inline cudaDataType_t type_of(DType dtype) {
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

// Sums in fp32, and fp32 operands as they are, no TF32.
inline Description make_description() {
  cublasLtMatmulDesc_t made = nullptr;
  cuda_check(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  return Description(made);
}

// A row-major matrix of `columns` columns, its rows `stride` elements apart.
inline Layout make_layout(cudaDataType_t type, std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  cublasLtMatrixLayout_t made = nullptr;
  cuda_check(cublasLtMatrixLayoutCreate(&made, type, static_cast<std::uint64_t>(columns),
                                        static_cast<std::uint64_t>(rows), stride));
  return Layout(made);
}

// The end of the workspace, for a bias that is not aligned: cuBLASLt takes none where it is.
inline constexpr std::size_t kBiasBytes = std::size_t{1} << 20;

// All of the workspace but that; pieces of k may be added in fp32 in it, in order: never by atomics, never as rounded
// to the result's type.
inline Preference make_preference() {
  cublasLtMatmulPreference_t made = nullptr;
  cuda_check(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  const std::size_t most = CudaStream::kWorkspaceBytes - kBiasBytes;
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most);
  const std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  return preference;
}

// How to compute c = a b, or to add it to c: ours, seen by columns.
struct Planned {
  Description description;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm = {};
  std::size_t workspace_bytes = 0;

  // Takes one of cuBLASLt's algorithms: of its candidates, best first by its own model, the one that `choose` names.
  // `what` is named in the error where there is none.
  template <class Choose>
  void take_algorithm(CudaStream& stream, const Preference& preference, std::string_view what, const Choose& choose) {
    std::array<cublasLtMatmulHeuristicResult_t, 8> found{};
    int count = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(stream.blas(), description.get(), b.get(), a.get(), c.get(), c.get(),
                                       preference.get(), static_cast<int>(found.size()), found.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS || count == 0)
      throw Error("cuBLASLt has no algorithm for {}: {}", what, cublasLtGetStatusString(status));
    const auto& chosen = found[choose(std::span(found).first(static_cast<std::size_t>(count)))];
    algorithm = chosen.algo;
    workspace_bytes = chosen.workspaceSize;
  }

  // Takes that of another product, which differs in the number of rows.
  void take_algorithm_of(CudaStream& stream, const Planned& other, std::string_view what) {
    cublasLtMatmulHeuristicResult_t result{};
    const cublasStatus_t status = cublasLtMatmulAlgoCheck(stream.blas(), description.get(), b.get(), a.get(), c.get(),
                                                          c.get(), &other.algorithm, &result);
    if (status != CUBLAS_STATUS_SUCCESS)
      throw Error("cuBLASLt's algorithm for many rows does not take {}: {}; compute without batch invariance", what,
                  cublasLtGetStatusString(status));
    algorithm = other.algorithm;
    workspace_bytes = result.workspaceSize;
  }

  void run(CudaStream& stream, const void* a_data, const void* b_data, void* c_data, Write write) const {
    const float one = 1, before = write == Write::add ? 1 : 0;
    cuda_check(cublasLtMatmul(stream.blas(), description.get(), &one, b_data, b.get(), a_data, a.get(), &before, c_data,
                              c.get(), c_data, c.get(), &algorithm, stream.workspace(workspace_bytes), workspace_bytes,
                              stream.handle()));
  }
};

// The plan of a product, which `plan` makes when it is first asked for. Each rank is a thread with a stream of its own,
// so that plans need no lock.
template <class Product, class Plan>
Planned& kept_plan(const Product& product, const Plan& plan) {
  thread_local std::map<Product, Planned> plans;
  const auto found = plans.find(product);
  return found != plans.end() ? found->second : plans.emplace(product, plan(product)).first->second;
}

}  // namespace zeepo::cuda
