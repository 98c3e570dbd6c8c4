#include "zeepo/device/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/base/size.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/cuda/gpu_memory.h"

namespace zeepo {
namespace {

std::string size_text(std::size_t bytes) { return format_size(static_cast<std::int64_t>(bytes)); }

// Touches every page on many threads: the driver, pinning, would have one thread clear them all, at 2 GB/s.
void bring_into_being(const MemoryRange& range) {
  constexpr std::size_t kPage = 4096;
  const std::size_t parts = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 16);
  const std::size_t part = (range.bytes() / parts + kPage) / kPage * kPage;
  std::vector<std::jthread> threads;
  for (std::size_t begin = 0; begin < range.bytes(); begin += part) {
    const auto touch = [&range, begin, end = std::min(range.bytes(), begin + part)] {
      for (std::size_t at = begin; at < end; at += kPage) range.data()[at] = std::byte{0};
    };
    try {
      threads.emplace_back(touch);
    } catch (const std::system_error&) {  // no thread to be had: slower, and the same memory
      touch();
    }
  }
}

}  // namespace

MemoryRange device_memory(CudaStream& stream, std::string_view tier, std::size_t bytes) {
  return gpu_memory(stream.device(), fmt::format("{} memory", tier), bytes, fmt::format("lower --memory {}=", tier));
}

MemoryRange transfer_memory(CudaStream&, std::string_view tier, std::size_t bytes) {
  MemoryRange pages = host_memory(tier, bytes);
  if (bytes == 0) return pages;
  // To touch more than there is would end the process, not throw.
  if (const std::int64_t free_bytes = free_memory_bytes(); static_cast<std::int64_t>(bytes) > free_bytes)
    throw Error("{} memory: cannot take {} of host memory: {} are free; lower --memory {}=", tier, size_text(bytes),
                format_size(free_bytes), tier);
  bring_into_being(pages);
  const cudaError_t code = cudaHostRegister(pages.data(), bytes, cudaHostRegisterPortable);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw Error("{} memory: cannot pin {} of host memory for copies to the GPU; lower --memory {}=", tier,
                size_text(bytes), tier);
  }
  cuda_check(code);
  return {pages.release(), bytes, [](std::byte* data, std::size_t size) noexcept {
            (void)cudaHostUnregister(data);
            (void)::munmap(data, size);
          }};
}

}  // namespace zeepo
