// What the three attention kernels share: sums of a warpgroup's 64 rows in registers, and where each of them belongs.
#pragma once

#include "zeepo/kernels/cuda/attention_arguments.h"
#include "zeepo/kernels/cuda/sm90/tile.h"
#include "zeepo/kernels/cuda/sm90/wgmma.h"

namespace zeepo::cuda::sm90 {

// What a multiprocessor has of shared memory for tiles, with room left for barriers.
constexpr int kSharedBytes = 224 * 1024;

constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// This thread's place: the row of its first sums within the warpgroup's 64 (the others are 8 further), and the first of
// its two columns in each eight.
struct Lane {
  int warpgroup, row, column;
  __device__ Lane()
      : warpgroup(threadIdx.x / 128),
        row(threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4),
        column(threadIdx.x % 4 * 2) {}
};

// 64 × columns sums, in parts that one instruction adds to.
template <int columns>
struct Sums {
  static constexpr int kParts = columns <= 128 ? 1 : columns / 128;
  static constexpr int kPartColumns = columns / kParts;
  float part[kParts][kPartColumns / 2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int i = 0; i < kPartColumns / 2; ++i) part[p][i] = 0;
  }
  // Multiplies the two rows of this thread.
  __device__ __forceinline__ void scale(float row0, float row8) {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int i = 0; i < kPartColumns / 2; ++i) part[p][i] *= i % 4 < 2 ? row0 : row8;
  }
  // += left · (the first 16·steps rows of) tile
  template <class T, int steps, int rows>
  __device__ __forceinline__ void add(const std::uint32_t (&left)[steps][4], Tile<rows, columns> tile) {
#pragma unroll
    for (int k = 0; k < steps; ++k)
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        multiply<T, Along::n>(part[p], left[k], tile.along_n(16 * k, kPartColumns * p), 1);
  }
  // f(row 0 or 8, column, two neighbouring sums)
  template <class F>
  __device__ __forceinline__ void each_pair(const Lane& lane, F&& f) const {
#pragma unroll
    for (int p = 0; p < kParts; ++p)
#pragma unroll
      for (int j = 0; j < kPartColumns / 8; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          f(8 * r, p * kPartColumns + 8 * j + lane.column, part[p][4 * j + 2 * r], part[p][4 * j + 2 * r + 1]);
  }
};

// products = 64 rows of `left` times the rows of `right`.
template <class T, int n, int left_rows, int right_rows, int columns>
__device__ __forceinline__ void dot_rows(float (&products)[n], Tile<left_rows, columns> left, int first_row,
                                         Tile<right_rows, columns> right) {
  static_assert(n == right_rows / 2);
#pragma unroll
  for (int k = 0; k < columns / 16; ++k)
    multiply<T, Along::k>(products, left.along_k(first_row, 16 * k), right.along_k(0, 16 * k), k > 0);
}

// Writes rows of one head from `first` on, where they are.
template <class T, int columns>
__device__ __forceinline__ void store(const Sums<columns>& sums, const Lane& lane, T* head, std::int64_t row_stride,
                                      int first, int end, int dim) {
  sums.each_pair(lane, [&](int row, int column, float low, float high) {
    const int i = first + lane.row + row;
    if (i >= end || column >= dim) return;
    *reinterpret_cast<std::uint32_t*>(head + i * row_stride + column) = pack<T>(low, high);
  });
}

}  // namespace zeepo::cuda::sm90
