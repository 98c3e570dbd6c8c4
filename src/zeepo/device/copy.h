// Bytes between host memory and a device's. The host memory must stay as it is until the stream has passed the copy.
// Any host memory will do; between a GPU and memory that is not pinned the call itself may wait for the copy.
#pragma once

#include <cstddef>

#include "zeepo/device/stream.h"

namespace zeepo {

void copy_to_device(CpuStream&, const void* host, void* device, std::size_t bytes);
void copy_to_device(CudaStream&, const void* host, void* device, std::size_t bytes);
void copy_to_device(DryStream&, const void* host, void* device, std::size_t bytes);
// The same, but the bytes are taken at once and host memory may change: waits neither for the stream nor for the copy.
void upload(CpuStream&, const void* host, void* device, std::size_t bytes);
void upload(CudaStream&, const void* host, void* device, std::size_t bytes);
void upload(DryStream&, const void* host, void* device, std::size_t bytes);
void copy_to_host(CpuStream&, const void* device, void* host, std::size_t bytes);
void copy_to_host(CudaStream&, const void* device, void* host, std::size_t bytes);
void copy_to_host(DryStream&, const void* device, void* host, std::size_t bytes);

}  // namespace zeepo
