// philox() and uniform() of base/rng.h on the GPU: the same numbers.
#pragma once

#include <cstdint>

#include "zeepo/base/rng.h"

namespace zeepo::cuda {

__device__ inline uint4 philox_block(RngKey key, std::uint64_t counter) {
  uint4 c{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  auto k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
    c = {high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Numbers 4·block to 4·block + 3 of a stream.
__device__ __forceinline__ void uniform_block(RngKey key, std::uint64_t block, float (&out)[4]) {
  const uint4 drawn = philox_block(key, block);
  const std::uint32_t bits[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = static_cast<float>(bits[i] >> 8) * 0x1p-24f;
}

}  // namespace zeepo::cuda
