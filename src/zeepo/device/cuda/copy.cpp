#include "zeepo/device/copy.h"

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/cuda/uploads.h"

namespace zeepo {

void copy_to_device(CudaStream& stream, const void* host, void* device, std::size_t bytes) {
  cuda_check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream.handle()));
}

void upload(CudaStream& stream, const void* host, void* device, std::size_t bytes) {
  stream.uploads().send(stream, host, device, bytes);
}

void copy_to_host(CudaStream& stream, const void* device, void* host, std::size_t bytes) {
  cuda_check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream.handle()));
}

}  // namespace zeepo
