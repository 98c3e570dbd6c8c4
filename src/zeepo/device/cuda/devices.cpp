#include "zeepo/device/devices.h"

#include <cstring>

#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {

int cuda_devices() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver) {
    (void)cudaGetLastError();  // it would come up again after the next launch
    return 0;
  }
  cuda_check(code);
  return devices;
}

std::unique_ptr<Stream> make_cuda_stream(int device) { return std::make_unique<CudaStream>(device); }

DeviceMemory cuda_memory(int device) {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device));
  cuda_check(cudaSetDevice(device));
  DeviceMemory memory{.name = properties.name};
  static_assert(sizeof memory.id == sizeof properties.uuid);
  std::memcpy(memory.id.data(), &properties.uuid, sizeof memory.id);
  cuda_check(cudaMemGetInfo(&memory.free_bytes, &memory.all_bytes));
  return memory;
}

}  // namespace zeepo
