#include "zeepo/device/copy.h"

#include <cstring>

namespace zeepo {

void copy_to_device(CpuStream&, const void* host, void* device, std::size_t bytes) { std::memcpy(device, host, bytes); }

void upload(CpuStream& stream, const void* host, void* device, std::size_t bytes) {
  copy_to_device(stream, host, device, bytes);
}

void copy_to_host(CpuStream&, const void* device, void* host, std::size_t bytes) { std::memcpy(host, device, bytes); }

}  // namespace zeepo
