// A weight's rows as kernels for few rows read them: 16 rows and kStep of k at a time by a warp, straight from memory
// to the operands of m16n8k16 products of the matrix units.
//
// Such a product adds up 16 of k in any order, so lanes take those that lie beside each other in memory: lane 4·g + t
// has rows g and g + 8. Product i of a step takes of the lane four values of each row.
#pragma once

#include "zeepo/kernels/coded_weights.h"
#include "zeepo/kernels/cuda/floats.h"

namespace zeepo::cuda {

inline constexpr int kTile = 16, kStep = 128, kProducts = kStep / 16;

// A bf16, in the low or the high half of a word.
__device__ __forceinline__ float low_bf16(unsigned x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high_bf16(unsigned x) { return __uint_as_float(x & 0xffff0000u); }

// The left operand of a product: two neighbours of rows g and g + 8, and the two after them.
struct Left {
  unsigned at[4];
};

// Which rows of the weight stand at the 16 rows of a tile, the last ones where there are no more. With gates, the first
// 8 are gates and the others the values that they are for.
template <bool kGated>
struct TileRows {
  std::int64_t n;
  static constexpr int kOut = kGated ? kTile / 2 : kTile;  // results of a tile

  __device__ __forceinline__ std::int64_t operator()(int tile, int i) const {
    if constexpr (kGated)
      return (i < kOut ? 0 : n) + min(std::int64_t{tile} * kOut + i % kOut, n - 1);
    else
      return min(std::int64_t{tile} * kOut + i, n - 1);
  }
};

// Weights as they are. A warp copies its steps to shared memory, kSlots of them ahead of their use: as many bytes are
// on their way as the memory needs to be busy, and no register waits for them.
template <class T>
struct PlainRows {
  const T* data;
  std::int64_t k;

  static constexpr int kSlots = 3;
  static constexpr std::size_t kSlotBytes = kTile * kStep * sizeof(T);
  struct Held {
    uint4 at[2][4];  // of rows g and g + 8: 8 neighbours at a time, for two products
  };

  // Rows are 256 bytes, in 16 parts; those of odd rows are exchanged, so that lanes of two rows meet no bank twice.
  static __device__ __forceinline__ unsigned place(int row, int part) {
    return static_cast<unsigned>(row * 256 + (part ^ (row & 1) << 2) * 16);
  }
  template <class Rows>
  __device__ __forceinline__ void start(unsigned slot, const Rows& rows, int tile, int step) const {
    const int lane = threadIdx.x % kWarp, part = lane % 16;
    const std::int64_t column = std::int64_t{step} * kStep + part * 8;
    const unsigned bytes = column < k ? 16 : 0;
#pragma unroll
    for (int i = 0; i < kTile / 2; ++i) {
      const int row = 2 * i + lane / 16;
      const T* const from = bytes ? data + rows(tile, row) * k + column : data;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(slot + place(row, part)), "l"(from), "r"(bytes)
                   : "memory");
    }
  }
  static __device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // The oldest of kSlots steps is here, for all lanes.
  static __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
    __syncwarp();
  }
  static __device__ __forceinline__ void take(Held& held, unsigned slot, int g, int t) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        uint4& x = held.at[r][c];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "r"(slot + place(g + 8 * r, 4 * c + t))
                     : "memory");
      }
    __syncwarp();
  }
  static __device__ __forceinline__ Left left(const Held& held, int i) {
    const uint4 &a = held.at[0][i / 2], &b = held.at[1][i / 2];
    return i % 2 == 0 ? Left{{a.x, b.x, a.y, b.y}} : Left{{a.z, b.z, a.w, b.w}};
  }
};

// Products whose operand on the right is (k, k + 2), (k + 1, k + 3) of four neighbours: the order in which codes are
// taken out of words.
__device__ __forceinline__ uint2 by_twos(uint2 x) {
  return {__byte_perm(x.x, x.y, 0x5410), __byte_perm(x.x, x.y, 0x7632)};
}

// Four neighbours of a row, each the value of its code and rounded to T as expand_weights rounds it; the first and the
// third, the second and the fourth. kCode is the code's bits in a byte, those below its sign.
template <class T, unsigned kCode>
struct CodeValues;

// Of codes' bits under the exponent of 128 the unit is 1: a code is what stands there less 128, or less 128 and its
// sign's weight. Both are exact; the product rounds once.
template <unsigned kCode>
struct CodeValues<__nv_bfloat16, kCode> {
  static __device__ __forceinline__ uint2 of(unsigned codes, float scale) {
    const __nv_bfloat162 scales = __float2bfloat162_rn(scale);
    return {two(codes, scales), two(codes >> 8, scales)};
  }

 private:
  static __device__ __forceinline__ unsigned two(unsigned codes, __nv_bfloat162 scales) {
    constexpr unsigned kLow = kCode * 0x00010001u, kSign = (kCode + 1) * 0x00010001u, kBase = 0x43004300u;
    unsigned value, less;
    if constexpr (kCode == 0x7f) {  // the sign's weight is the exponent's last bit
      value = (codes & kLow) | kBase;
      less = (codes & kSign) | kBase;
    } else {
      value = (codes & (kLow | kSign)) ^ (kBase | kSign);  // the code and its sign's weight
      less = kBase | kSign;
    }
    const __nv_bfloat162 whole = __hsub2(as_pair(value), as_pair(less));
    const __nv_bfloat162 scaled = __hmul2(whole, scales);
    return *reinterpret_cast<const unsigned*>(&scaled);
  }
  static __device__ __forceinline__ __nv_bfloat162 as_pair(unsigned x) {
    return *reinterpret_cast<const __nv_bfloat162*>(&x);
  }
};

// 2^23 and a byte are a float whose last bits are the byte.
template <unsigned kCode>
struct CodeValues<__half, kCode> {
  static __device__ __forceinline__ uint2 of(unsigned codes, float scale) {
    constexpr unsigned kAll = (2 * kCode + 1) * 0x01010101u, kSign = (kCode + 1) * 0x01010101u;
    const unsigned above = (codes & kAll) ^ kSign;
    const auto value = [&](unsigned selector) {
      const float shifted = __uint_as_float(__byte_perm(above, 0x4b000000u, selector));
      return (shifted - static_cast<float>(8388608u + kCode + 1)) * scale;
    };
    return {pair_of(value(0x7440), value(0x7442)), pair_of(value(0x7441), value(0x7443))};
  }

 private:
  static __device__ __forceinline__ unsigned pair_of(float a, float b) {
    const __half2 two = __floats2half2_rn(a, b);
    return *reinterpret_cast<const unsigned*>(&two);
  }
};

// Codes, a row of kCodedRow values a step: a lane has four neighbours at a time.
template <class T>
struct Int8Rows {
  const std::byte* data;
  std::int64_t k;

  static constexpr int kDepth = 2;
  struct Held {
    unsigned at[2][8], scales[2];
  };
  __device__ __forceinline__ const std::byte* row(std::int64_t i) const { return data + i * (k / kCodedRow) * kBytes; }
  template <class Rows>
  __device__ __forceinline__ void load(Held& held, const Rows& rows, int tile, int step, int g, int t) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto* codes = reinterpret_cast<const unsigned*>(row(rows(tile, g + 8 * r)) + step * kBytes);
#pragma unroll
      for (int i = 0; i < 8; ++i) held.at[r][i] = __ldg(codes + t + 4 * i);
      held.scales[r] = __ldg(codes + 32);
    }
  }
  static __device__ __forceinline__ Left left(const Held& held, int i) {
    Left left;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float scale = i < 4 ? low_bf16(held.scales[r]) : high_bf16(held.scales[r]);
      const uint2 values = CodeValues<T, 0x7f>::of(held.at[r][i], scale);
      left.at[r] = values.x;
      left.at[2 + r] = values.y;
    }
    return left;
  }
  static __device__ __forceinline__ uint2 right(const T* x, int i, int t) {
    return by_twos(*reinterpret_cast<const uint2*>(x + i * 16 + t * 4));
  }

 private:
  static constexpr std::int64_t kBytes = coded_row_bytes(CodedType::int8);
};

// The low halves of bytes are the first 64 values, the high ones the last.
template <class T>
struct Int4Rows {
  const std::byte* data;
  std::int64_t k;

  static constexpr int kDepth = 2;
  struct Held {
    unsigned at[2][4], scales[2][2];
  };
  __device__ __forceinline__ const std::byte* row(std::int64_t i) const { return data + i * (k / kCodedRow) * kBytes; }
  template <class Rows>
  __device__ __forceinline__ void load(Held& held, const Rows& rows, int tile, int step, int g, int t) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto* codes = reinterpret_cast<const unsigned*>(row(rows(tile, g + 8 * r)) + step * kBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) held.at[r][i] = __ldg(codes + t + 4 * i);
      held.scales[r][0] = __ldg(codes + 16);
      held.scales[r][1] = __ldg(codes + 17);
    }
  }
  static __device__ __forceinline__ Left left(const Held& held, int i) {
    Left left;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const unsigned scales = held.scales[r][i / 4];
      const float scale = i / 2 % 2 == 0 ? low_bf16(scales) : high_bf16(scales);
      const uint2 values = CodeValues<T, 0x7>::of(i < 4 ? held.at[r][i] : held.at[r][i - 4] >> 4, scale);
      left.at[r] = values.x;
      left.at[2 + r] = values.y;
    }
    return left;
  }
  static __device__ __forceinline__ uint2 right(const T* x, int i, int t) {
    return by_twos(*reinterpret_cast<const uint2*>(x + i * 16 + t * 4));
  }

 private:
  static constexpr std::int64_t kBytes = coded_row_bytes(CodedType::int4);
};

}  // namespace zeepo::cuda
