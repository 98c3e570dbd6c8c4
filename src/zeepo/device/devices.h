// The GPUs of this machine, for who chooses where to compute. In a build without CUDA there are none.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "zeepo/device/stream.h"

namespace zeepo {

// GPUs that can be used; 0 when there is none, or no driver.
int cuda_devices();
// Throw Error when there is no such GPU.
std::unique_ptr<Stream> make_cuda_stream(int device);
struct DeviceMemory {
  std::string name;  // of the GPU
  std::size_t free_bytes, all_bytes;
};
DeviceMemory cuda_memory(int device);

}  // namespace zeepo
