// The shared memory of a block, beyond the 48 KiB that every kernel may have.
#pragma once

#include "zeepo/base/error.h"
#include "zeepo/device/cuda/check.h"

namespace zeepo::cuda {

// What a block may have on a GPU, a kernel's own variables included: 99 KiB on consumers' chips, up to 227 on others.
inline int most_shared_bytes(int gpu) {
  int bytes = 0;
  cuda_check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu));
  return bytes;
}

// Before every launch: it holds for the current GPU only. Throws Error when a block of this GPU cannot have so much.
template <class... Parameters>
void allow_shared_bytes(void (*kernel)(Parameters...), std::size_t bytes, const char* op) {
  constexpr std::size_t kWithoutAsking = 48 << 10;
  if (bytes <= kWithoutAsking) return;
  const cudaError_t code =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (code == cudaErrorInvalidValue) {
    (void)cudaGetLastError();  // or the next launch would be blamed for it
    int gpu = 0;
    cuda_check(cudaGetDevice(&gpu));
    throw Error("{}: a block takes {} bytes of shared memory; GPU {} has {}", op, bytes, gpu, most_shared_bytes(gpu));
  }
  cuda_check(code);
}

}  // namespace zeepo::cuda
