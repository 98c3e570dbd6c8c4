#include <cuda_runtime_api.h>

#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/sm90/tile.h"

namespace zeepo::cuda::sm90 {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// A function of the driver, which programs are not linked with.
Encode encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) cuda_check(cudaErrorCallRequiresNewerDriver);
  return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap tensor_map(const ConstHeads& x, int rows) {
  static const Encode encode = encoder();
  const auto size = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t extents[] = {size(x.head_dim), size(x.heads), size(x.rows), size(x.batch)};
  const cuuint64_t strides[] = {size(x.head_dim * 2), size(x.row_stride * 2), size(x.batch_stride * 2)};
  const cuuint32_t box[] = {kPanelColumns, 1, static_cast<cuuint32_t>(rows), 1}, steps[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult code =
      encode(&map, x.dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
             const_cast<void*>(x.data), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (code != CUDA_SUCCESS) cuda_check(cudaErrorInvalidValue);
  return map;
}

}  // namespace zeepo::cuda::sm90
