// What the products by cuBLASLt share: its handles as values, attributes, and how memory is aligned.
#pragma once

#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <memory>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"
#include "zeepo/device/cuda/cuda_stream.h"

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

}  // namespace zeepo::cuda
