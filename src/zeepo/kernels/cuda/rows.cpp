#include "zeepo/base/error.h"
#include "zeepo/device/cuda/check.h"

namespace zeepo::cuda {

void allow_shared_bytes(const void* kernel, std::size_t bytes, const char* op);
void allow_shared_bytes(const void* kernel, std::size_t bytes, const char* op) {
  constexpr std::size_t kWithoutAsking = 48 << 10, kMost = 224 << 10;
  if (bytes <= kWithoutAsking) return;
  if (bytes > kMost)
    throw Error("{}: rows that take {} bytes of a block's shared memory; a GPU has {}", op, bytes, kMost);
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

}  // namespace zeepo::cuda
