// uniform() of base/rng.h on the GPU: the same numbers.
#pragma once

#include <cstdint>

#include "zeepo/base/rng.h"

namespace zeepo::cuda {

// Numbers 4·block to 4·block + 3 of a stream.
__device__ __forceinline__ void uniform_block(RngKey key, std::uint64_t block, float (&out)[4]) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block), c1 = static_cast<std::uint32_t>(block >> 32), c2 = 0, c3 = 0;
  std::uint32_t k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ k0;
    c1 = low1;
    c2 = high0 ^ c3 ^ k1;
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const std::uint32_t bits[4] = {c0, c1, c2, c3};
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = static_cast<float>(bits[i] >> 8) * 0x1p-24f;
}

}  // namespace zeepo::cuda
