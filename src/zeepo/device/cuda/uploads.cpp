#include "zeepo/device/cuda/uploads.h"

#include <algorithm>
#include <cstring>

#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {

Uploads::Uploads(CudaStream& stream) : memory_(transfer_memory(stream, "host", kBuffers * kBufferBytes)) {}

Uploads::~Uploads() {
  for (const Point& point : sent_)
    if (point.event) (void)cudaEventSynchronize(static_cast<cudaEvent_t>(point.event.get()));
}

void Uploads::send(CudaStream& stream, const void* host, void* device, std::size_t bytes) {
  for (std::size_t begin = 0; begin < bytes; begin += kBufferBytes) {
    const std::size_t part = std::min(kBufferBytes, bytes - begin), buffer = next_++ % kBuffers;
    std::byte* const memory = memory_.data() + buffer * kBufferBytes;
    wait_for(stream, sent_[buffer]);
    std::memcpy(memory, static_cast<const std::byte*>(host) + begin, part);
    cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(device) + begin, memory, part, cudaMemcpyHostToDevice,
                               stream.handle()));
    sent_[buffer] = point_of(stream);
  }
}

}  // namespace zeepo
