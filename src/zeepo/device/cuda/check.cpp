#include "zeepo/device/cuda/check.h"

#include "zeepo/base/error.h"

namespace zeepo {

void throw_cuda_error(cudaError_t code, const std::source_location& at) {
  throw Error("{}:{}: CUDA: {} ({})", at.file_name(), at.line(), cudaGetErrorString(code), cudaGetErrorName(code));
}

void throw_cublas_error(cublasStatus_t code, const std::source_location& at) {
  throw Error("{}:{}: cuBLASLt: {} ({})", at.file_name(), at.line(), cublasLtGetStatusString(code),
              cublasLtGetStatusName(code));
}

}  // namespace zeepo
