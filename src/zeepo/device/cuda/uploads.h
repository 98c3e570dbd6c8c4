// Pinned buffers that a stream's small uploads pass through, one after another, so that the host need not wait until
// the stream comes to them: for token ids and the like. A buffer is waited for when it is used again.
#pragma once

#include <array>
#include <cstddef>

#include "zeepo/device/copy_lane.h"
#include "zeepo/device/memory.h"

namespace zeepo {

class Uploads {
 public:
  explicit Uploads(CudaStream& stream);
  // Waits for what is on its way.
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // Takes the bytes at once.
  void send(CudaStream& stream, const void* host, void* device, std::size_t bytes);

 private:
  static constexpr std::size_t kBuffers = 16, kBufferBytes = std::size_t{512} << 10;
  MemoryRange memory_;
  std::array<Point, kBuffers> sent_;  // what each buffer last held
  std::size_t next_ = 0;
};

}  // namespace zeepo
