// Which of the 64 × 64 weights that a warpgroup holds are kept, a bit each: random numbers come four at a time, for
// four keys, and lanes that hold those keys share them.
#pragma once

#include "zeepo/kernels/cuda/attention_dropout.h"
#include "zeepo/kernels/cuda/sm90/attention_math.h"

namespace zeepo::cuda::sm90 {

class FourKept {
 public:
  __device__ FourKept(const AttentionExtents& x, int b, int h)
      : key_(x.key),
        head_((std::uint64_t(x.first_sample + b) * x.heads + h) * x.queries),
        keys_(x.keys),
        threshold_(static_cast<std::uint32_t>(ceilf(x.dropout * 0x1p24f))) {}

  // Whether query i keeps keys j to j + 3, a bit each; j and the number of keys are multiples of four.
  __device__ __forceinline__ std::uint32_t operator()(int i, int j) const {
    const uint4 bits = philox_block(key_, ((head_ + i) * keys_ + j) / 4);
    return kept(bits.x) | kept(bits.y) << 1 | kept(bits.z) << 2 | kept(bits.w) << 3;
  }
  // Whether query i keeps key j.
  __device__ __forceinline__ std::uint32_t one(int i, int j) const {
    const std::uint64_t index = (head_ + i) * keys_ + j;
    const uint4 bits = philox_block(key_, index / 4);
    const int lane = static_cast<int>(index % 4);
    return kept(lane == 0 ? bits.x : lane == 1 ? bits.y : lane == 2 ? bits.z : bits.w);
  }

 private:
  // A uniform number (bits >> 8) · 2^-24 is at least p.
  __device__ __forceinline__ std::uint32_t kept(std::uint32_t bits) const { return (bits >> 8) >= threshold_; }
  RngKey key_;
  std::uint64_t head_, keys_;
  std::uint32_t threshold_;
};

// Weights of queries × keys from (i, j) on, j a multiple of four, as products of queries with keys come.
class KeptOfQueries {
 public:
  __device__ KeptOfQueries(const AttentionExtents& x, int b, int h, const Lane& lane, int i, int j) {
    const FourKept four(x, b, h);
    if (x.keys % 4 != 0) {
      shift_ = 0;
#pragma unroll
      for (int m = 0; m < 32; ++m)
        word_[m % 4 / 2] |= four.one(i + lane.row + m % 4 / 2 * 8, j + m / 4 * 8 + lane.column + m % 2)
                            << (m / 4 * 4 + m % 2);
      return;
    }
    // Two lanes hold four keys; the even one draws for their first row, the odd one for the other.
    const int odd = lane.column / 2 % 2;
    shift_ = 2 * odd;
    std::uint32_t mine = 0;
#pragma unroll
    for (int g = 0; g < 8; ++g) mine |= four(i + lane.row + 8 * odd, j + 8 * g + lane.column / 4 * 4) << 4 * g;
    const std::uint32_t other = __shfl_xor_sync(~0u, mine, 1);
    word_[0] = odd ? other : mine;
    word_[1] = odd ? mine : other;
  }
  __device__ __forceinline__ bool operator[](int m) const {
    return word_[m % 4 / 2] >> (m / 4 * 4 + m % 2 + shift_) & 1;
  }

 private:
  std::uint32_t word_[2] = {};
  int shift_;
};

// The same, transposed: as products of keys with queries come.
class KeptOfKeys {
 public:
  __device__ KeptOfKeys(const AttentionExtents& x, int b, int h, const Lane& lane, int i, int j) {
    const FourKept four(x, b, h);
    if (x.keys % 4 != 0) {
      shift_ = 0;
#pragma unroll
      for (int m = 0; m < 32; ++m)
        word_[m % 4] |= four.one(i + m / 4 * 8 + lane.column + m % 2, j + lane.row + m % 4 / 2 * 8) << m / 4 * 4;
      return;
    }
    // Four lanes, four apart, hold four keys; each draws for a quarter of the queries.
    const int number = threadIdx.x % 32, quarter = number / 4 % 4;
    shift_ = quarter;
    std::uint32_t mine = 0;
#pragma unroll
    for (int g = 0; g < 8; ++g)
      mine |= four(i + 8 * g + lane.column + quarter % 2, j + lane.row / 4 * 4 + quarter / 2 * 8) << 4 * g;
#pragma unroll
    for (int s = 0; s < 4; ++s) word_[s] = __shfl_sync(~0u, mine, (number & 0x13) | s << 2);
  }
  __device__ __forceinline__ bool operator[](int m) const { return word_[m % 4] >> (m / 4 * 4 + shift_) & 1; }

 private:
  std::uint32_t word_[4] = {};
  int shift_;
};

}  // namespace zeepo::cuda::sm90
