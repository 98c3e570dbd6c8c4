// Kernels that start while the kernel before them in the stream still runs, on Hopper and later.
//
// Such a kernel asks for what does not depend on the kernel before it, weights that stay as they are, then calls
// wait_for_kernel_before(), and only then reads or writes anything else. Every thread calls it. Without an early start
// the calls do nothing. A chain of such kernels is as ordered as any other: each ends after the one before it.
#pragma once

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/shared_memory.h"

namespace zeepo::cuda {

__device__ __forceinline__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// From here on the next kernel may start, as soon as all blocks of this one have come here.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

struct LaunchShape {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
};

// The kernel starts early where the stream's weights stay as they are.
template <class... Parameters, class... Arguments>
void launch_early(CudaStream& stream, const char* op, void (*kernel)(Parameters...), const LaunchShape& shape,
                  const Arguments&... arguments) {
  allow_shared_bytes(kernel, shape.shared_bytes, op);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.handle();
  config.attrs = &early;
  config.numAttrs = stream.weights_stay() ? 1 : 0;
  cuda_check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}

}  // namespace zeepo::cuda
