#include "zeepo/device/devices.h"

#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/weights_stay.h"

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

std::unique_ptr<Stream> make_cuda_stream(int device, BatchInvariant batch_invariant) {
  auto stream = std::make_unique<CudaStream>(device);
  stream->set_batch_invariant(batch_invariant);
  return stream;
}

void follow_stream(Stream& stream, std::uintptr_t handle) {
  as_cuda(stream).follow(reinterpret_cast<cudaStream_t>(handle));
}

void set_weights_stay(Stream& stream, bool stay) {
  if (stream.backend() == Backend::cuda) as_cuda(stream).set_weights_stay(stay);
}

DeviceMemory cuda_memory(int device) {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device));
  DeviceMemory memory{.name = properties.name};
  static_assert(sizeof memory.id == sizeof properties.uuid);
  std::memcpy(memory.id.data(), &properties.uuid, sizeof memory.id);
  // The first of a process makes its context there; how much is free only a process that has one can ask.
  cudaError_t code = cudaSetDevice(device);
  if (code == cudaSuccess) code = cudaMemGetInfo(&memory.free_bytes, &memory.all_bytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw Error(
        "GPU {} ({}, {}): so little of its memory is free that CUDA cannot begin there, which takes hundreds of MiB; "
        "end what else runs on the GPU (nvidia-smi shows it), or choose another one by CUDA_VISIBLE_DEVICES",
        device, memory.name, format_size(static_cast<std::int64_t>(properties.totalGlobalMem)));
  }
  cuda_check(code);
  return memory;
}

}  // namespace zeepo
