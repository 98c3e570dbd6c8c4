#include "zeepo/device/cuda/gpu_memory.h"

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/device/cuda/check.h"

namespace zeepo {

MemoryRange gpu_memory(int device, std::string_view what, std::size_t bytes, std::string_view remedy) {
  if (bytes == 0) return {};
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // it would come up again after the next launch
    std::size_t free_bytes = 0, all_bytes = 0;
    cuda_check(cudaMemGetInfo(&free_bytes, &all_bytes));
    const auto text = [](std::size_t size) { return format_size(static_cast<std::int64_t>(size)); };
    throw Error(
        "{}: cannot take {} on GPU {}: {} of its {} are free; {}{}end what else runs on the GPU (nvidia-smi shows it)",
        what, text(bytes), device, text(free_bytes), text(all_bytes), remedy, remedy.empty() ? "" : ", or ");
  }
  cuda_check(code);
  return {static_cast<std::byte*>(memory), bytes, [](std::byte* data, std::size_t) noexcept { (void)cudaFree(data); }};
}

}  // namespace zeepo
