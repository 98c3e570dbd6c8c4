// The GPUs of this machine, for who chooses where to compute. In a build without CUDA there are none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "zeepo/device/stream.h"

namespace zeepo {

// GPUs that can be used; 0 when there is none, or no driver.
int cuda_devices();
// With `yes` a row of a product or of attention has the same bits whatever other rows there are: kernels are chosen by
// everything but the number of rows. Otherwise the fastest for that number. On a CPU it is always so.
enum class BatchInvariant : bool { no, yes };
// Throw Error when there is no such GPU.
std::unique_ptr<Stream> make_cuda_stream(int device, BatchInvariant batch_invariant = BatchInvariant::no);
// Work given to the stream from now on goes to a stream of another library's in this process, which is named by its
// cudaStream_t, and starts behind what was given before.
void follow_stream(Stream& stream, std::uintptr_t handle);
struct DeviceMemory {
  std::string name;                  // of the GPU
  std::array<std::int32_t, 4> id{};  // of the GPU, in the whole world
  std::size_t free_bytes = 0, all_bytes = 0;
};
DeviceMemory cuda_memory(int device);

}  // namespace zeepo
