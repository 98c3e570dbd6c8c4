// Tiles of attention_plain's kernels: fp32 rows in shared memory, and the products of 256 threads over them.
//
// Thread (ty, tx) of 16 × 16 has rows ty + 16·r of a result, and its columns tx + 16·c (products) or tx·4 + 64·c + 0..3
// (sums of rows).
#pragma once

#include "zeepo/kernels/cuda/attention_arguments.h"
#include "zeepo/kernels/cuda/floats.h"

namespace zeepo::cuda {

constexpr int kPlainThreads = 256;

// `rows` rows of `columns` numbers, four apart from the next row: neither rows nor columns meet one bank twice.
template <int rows_, int columns>
struct PlainTile {
  static constexpr int kRows = rows_, kStride = columns + 4;
  static constexpr int kFloats = rows_ * kStride;
  float* data;
  __device__ float* row(int r) const { return data + r * kStride; }

  // Rows [first, first + kRows) of one head; zero from `end` on and from column `dim` on.
  template <class T>
  __device__ void load(const T* head, std::int64_t row_stride, int first, int end, int dim) const {
    for (int i = threadIdx.x; i < kRows * columns; i += kPlainThreads) {
      const int r = i / columns, d = i % columns;
      row(r)[d] = first + r < end && d < dim ? widen(head[(first + r) * row_stride + d]) : 0.0f;
    }
  }
};

// products[r][c] = row (ty + 16r) of a · row (tx + 16c) of b
template <int columns, int n, int m>
__device__ void dot_rows(float (&products)[n / 16][m / 16], PlainTile<n, columns> a, PlainTile<m, columns> b, int ty,
                         int tx) {
#pragma unroll
  for (int r = 0; r < n / 16; ++r)
#pragma unroll
    for (int c = 0; c < m / 16; ++c) products[r][c] = 0;
#pragma unroll 4
  for (int d = 0; d < columns; d += 4) {
    float4 x[n / 16], y[m / 16];
#pragma unroll
    for (int r = 0; r < n / 16; ++r) x[r] = *reinterpret_cast<const float4*>(a.row(ty + 16 * r) + d);
#pragma unroll
    for (int c = 0; c < m / 16; ++c) y[c] = *reinterpret_cast<const float4*>(b.row(tx + 16 * c) + d);
#pragma unroll
    for (int r = 0; r < n / 16; ++r)
#pragma unroll
      for (int c = 0; c < m / 16; ++c) {
        float& sum = products[r][c];
        sum = fmaf(x[r].x, y[c].x, sum);
        sum = fmaf(x[r].y, y[c].y, sum);
        sum = fmaf(x[r].z, y[c].z, sum);
        sum = fmaf(x[r].w, y[c].w, sum);
      }
  }
}

// Rows ty + 16r of a result with `columns` columns.
template <int n, int columns>
struct PlainSums {
  float4 sum[n / 16][columns / 64];

  __device__ void clear() {
#pragma unroll
    for (int r = 0; r < n / 16; ++r)
#pragma unroll
      for (int c = 0; c < columns / 64; ++c) sum[r][c] = {0, 0, 0, 0};
  }
  __device__ void scale_row(int r, float factor) {
#pragma unroll
    for (int c = 0; c < columns / 64; ++c) {
      float4& s = sum[r][c];
      s = {s.x * factor, s.y * factor, s.z * factor, s.w * factor};
    }
  }
  // += weights · rows, or with the weights (kept as rows of b × n) transposed.
  template <bool transposed, int m, class Weights>
  __device__ void add(Weights weights, PlainTile<m, columns> rows, int ty, int tx) {
#pragma unroll 4
    for (int k = 0; k < m; ++k) {
      float w[n / 16];
#pragma unroll
      for (int r = 0; r < n / 16; ++r) w[r] = transposed ? weights.row(k)[ty + 16 * r] : weights.row(ty + 16 * r)[k];
#pragma unroll
      for (int c = 0; c < columns / 64; ++c) {
        const float4 y = *reinterpret_cast<const float4*>(rows.row(k) + 4 * tx + 64 * c);
#pragma unroll
        for (int r = 0; r < n / 16; ++r) {
          float4& s = sum[r][c];
          s = {fmaf(w[r], y.x, s.x), fmaf(w[r], y.y, s.y), fmaf(w[r], y.z, s.z), fmaf(w[r], y.w, s.w)};
        }
      }
    }
  }
  template <class T>
  __device__ void store(T* head, std::int64_t row_stride, int first, int end, int dim, int ty, int tx) const {
#pragma unroll
    for (int r = 0; r < n / 16; ++r) {
      const int i = first + ty + 16 * r;
      if (i >= end) continue;
      T* to = head + i * row_stride;
#pragma unroll
      for (int c = 0; c < columns / 64; ++c) {
        const int d = 4 * tx + 64 * c;
        const float4& s = sum[r][c];
        if (d < dim) to[d] = narrow<T>(s.x);
        if (d + 1 < dim) to[d + 1] = narrow<T>(s.y);
        if (d + 2 < dim) to[d + 2] = narrow<T>(s.z);
        if (d + 3 < dim) to[d + 3] = narrow<T>(s.w);
      }
    }
  }
};

}  // namespace zeepo::cuda
