// Every result of a CUDA call goes through cuda_check, which throws Error with the place of the call.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <memory>
#include <source_location>

namespace zeepo {

[[noreturn]] void throw_cuda_error(cudaError_t code, const std::source_location& at);
[[noreturn]] void throw_cublas_error(cublasStatus_t code, const std::source_location& at);

inline void cuda_check(cudaError_t code, const std::source_location& at = std::source_location::current()) {
  if (code != cudaSuccess) throw_cuda_error(code, at);
}
inline void cuda_check(cublasStatus_t code, const std::source_location& at = std::source_location::current()) {
  if (code != CUBLAS_STATUS_SUCCESS) throw_cublas_error(code, at);
}
// After a launch: what the launch itself met. What the kernel meets is found by CudaStream::synchronize.
inline void check_launch(const std::source_location& at = std::source_location::current()) {
  cuda_check(cudaGetLastError(), at);
}

// For unique_ptr over a handle of a C library.
template <class Handle, auto destroy>
struct Destroy {
  using pointer = Handle;
  void operator()(Handle handle) const noexcept { (void)destroy(handle); }
};

}  // namespace zeepo
