// How kernels that give a block to each row are launched.
#pragma once

#include <algorithm>

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"

namespace zeepo::cuda {

// Threads for a row of `packs`: whole warps, at most `most`, each with the same number of packs or one less.
inline unsigned threads_for(std::int64_t packs, std::int64_t most) {
  const auto rounds = pieces(std::max<std::int64_t>(1, packs), most);
  return static_cast<unsigned>(pieces(pieces(std::max<std::int64_t>(1, packs), rounds), kWarp) * kWarp);
}

// Throws Error when a block cannot have so much.
inline void allow_shared_bytes(const void* kernel, std::size_t bytes, const char* op) {
  constexpr std::size_t kWithoutAsking = 48 << 10, kMost = 224 << 10;
  if (bytes <= kWithoutAsking) return;
  if (bytes > kMost)
    throw Error("{}: rows that take {} bytes of a block's shared memory; a GPU has {}", op, bytes, kMost);
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

template <class... Parameters, class... Arguments>
void launch_rows(CudaStream& stream, const char* op, void (*kernel)(Parameters...), std::int64_t blocks, dim3 threads,
                 std::size_t shared_bytes, const Arguments&... arguments) {
  if (blocks == 0) return;
  allow_shared_bytes(reinterpret_cast<const void*>(kernel), shared_bytes, op);
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream.handle()>>>(arguments...);
  check_launch();
}

}  // namespace zeepo::cuda
