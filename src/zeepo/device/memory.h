// Memory taken as one range for a whole tier: a device's, the host's, or the host's where a device can copy from it.
//
// A range is given back when destroyed; its owner has waited for the work on it. Each function throws Error, naming the
// tier, when there is not that much to have. No bytes: no memory.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "zeepo/device/stream.h"

namespace zeepo {

class MemoryRange {
 public:
  using Free = void (*)(std::byte* data, std::size_t bytes) noexcept;

  MemoryRange() = default;
  MemoryRange(std::byte* data, std::size_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  ~MemoryRange() {
    if (data_) free_(data_, bytes_);
  }
  MemoryRange(MemoryRange&& other) noexcept { swap(other); }
  MemoryRange& operator=(MemoryRange&& other) noexcept {
    MemoryRange taken(std::move(other));
    swap(taken);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  // The memory, for another owner.
  std::byte* release() { return std::exchange(data_, nullptr); }

 private:
  void swap(MemoryRange& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Free free_ = nullptr;
};

// Address space whose pages come into being when first touched.
MemoryRange host_memory(std::string_view tier, std::size_t bytes);

// What kernels on the stream work on. A GPU's is there in full at once.
MemoryRange device_memory(CpuStream&, std::string_view tier, std::size_t bytes);
MemoryRange device_memory(CudaStream&, std::string_view tier, std::size_t bytes);

// Host memory that copies to and from the stream's device run beside the host's work: pinned, for a GPU.
MemoryRange transfer_memory(CpuStream&, std::string_view tier, std::size_t bytes);
MemoryRange transfer_memory(CudaStream&, std::string_view tier, std::size_t bytes);
MemoryRange transfer_memory(DryStream&, std::string_view tier, std::size_t bytes);

}  // namespace zeepo
