// Dropout of attention weights: the factors that the CPU's attention takes from the same key and element indices.
#pragma once

#include <cstdint>

#include "zeepo/kernels/cuda/attention_arguments.h"
#include "zeepo/kernels/cuda/philox.h"

namespace zeepo::cuda {

// The factors of weights (i, j) of one head: 1/(1 − p) where kept, else 0.
class KeepFactors {
 public:
  __device__ KeepFactors(const AttentionExtents& x, int b, int h)
      : key_(x.key),
        head_((std::uint64_t(x.first_sample + b) * x.heads + h) * x.queries),
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
