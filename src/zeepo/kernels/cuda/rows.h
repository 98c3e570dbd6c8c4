// How kernels that give a block to each row are launched.
#pragma once

#include <algorithm>

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/cuda/shared_memory.h"

namespace zeepo::cuda {

// Threads for a row of `packs`: whole warps, at most `most`, each with the same number of packs or one less.
inline unsigned threads_for(std::int64_t packs, std::int64_t most) {
  const auto rounds = pieces(std::max<std::int64_t>(1, packs), most);
  return static_cast<unsigned>(pieces(pieces(std::max<std::int64_t>(1, packs), rounds), kWarp) * kWarp);
}

template <class... Parameters, class... Arguments>
void launch_rows(CudaStream& stream, const char* op, void (*kernel)(Parameters...), std::int64_t blocks, dim3 threads,
                 std::size_t shared_bytes, const Arguments&... arguments) {
  if (blocks == 0) return;
  allow_shared_bytes(kernel, shared_bytes, op);
  kernel<<<static_cast<unsigned>(blocks), threads, shared_bytes, stream.handle()>>>(arguments...);
  check_launch();
}

}  // namespace zeepo::cuda
