// Dropout of attention weights: the factors that the CPU's attention takes from the same key and element indices.
#pragma once

#include <cstdint>

#include "zeepo/kernels/cuda/attention_arguments.h"

namespace zeepo::cuda {

// As zeepo::philox.
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

// The factors of weights (i, j) of one head: 1/(1 − p) where kept, else 0.
class KeepFactors {
 public:
  __device__ KeepFactors(const AttentionExtents& x, int b, int h)
      : key_(x.key),
        head_((std::uint64_t(b) * x.heads + h) * x.queries),
        keys_(x.keys),
        p_(x.dropout),
        kept_(1 / (1 - x.dropout)) {}

  __device__ float operator()(int i, int j) {
    const std::uint64_t index = (head_ + i) * keys_ + j;
    if (index / 4 != counter_) {
      counter_ = index / 4;
      bits_ = philox_block(key_, counter_);
    }
    const int lane = static_cast<int>(index % 4);
    const std::uint32_t bits = lane == 0 ? bits_.x : lane == 1 ? bits_.y : lane == 2 ? bits_.z : bits_.w;
    return static_cast<float>(bits >> 8) * 0x1p-24f >= p_ ? kept_ : 0.0f;
  }

 private:
  RngKey key_;
  std::uint64_t head_, keys_, counter_ = ~std::uint64_t{0};
  float p_, kept_;
  uint4 bits_{};
};

}  // namespace zeepo::cuda
