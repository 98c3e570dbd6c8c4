#include "zeepo/device/memory.h"

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {
namespace {

std::string size_text(std::size_t bytes) { return format_size(static_cast<std::int64_t>(bytes)); }

}  // namespace

MemoryRange device_memory(CudaStream& stream, std::string_view tier, std::size_t bytes) {
  if (bytes == 0) return {};
  void* memory = nullptr;
  const cudaError_t code = cudaMalloc(&memory, bytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    std::size_t free_bytes = 0, all_bytes = 0;
    cuda_check(cudaMemGetInfo(&free_bytes, &all_bytes));
    throw Error(
        "{} memory: cannot take {} on GPU {}: {} of its {} are free; lower --memory {}=, or end what else runs on the "
        "GPU (nvidia-smi shows it)",
        tier, size_text(bytes), stream.device(), size_text(free_bytes), size_text(all_bytes), tier);
  }
  cuda_check(code);
  return {static_cast<std::byte*>(memory), bytes, [](std::byte* data, std::size_t) noexcept { (void)cudaFree(data); }};
}

MemoryRange transfer_memory(CudaStream&, std::string_view tier, std::size_t bytes) {
  if (bytes == 0) return {};
  void* memory = nullptr;
  const cudaError_t code = cudaMallocHost(&memory, bytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw Error("{} memory: cannot pin {} of host memory for copies to the GPU; lower --memory {}=", tier,
                size_text(bytes), tier);
  }
  cuda_check(code);
  return {static_cast<std::byte*>(memory), bytes,
          [](std::byte* data, std::size_t) noexcept { (void)cudaFreeHost(data); }};
}

}  // namespace zeepo
