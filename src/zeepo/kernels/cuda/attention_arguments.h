// What attention's kernels are launched with, and who sees whom.
#pragma once

#include <cstdint>

#include "zeepo/kernels/attention.h"

namespace zeepo::cuda {

// Element (b, t, h, d) is at data[b·batch_stride + t·row_stride + h·dim + d].
struct HeadsPointer {
  void* data;
  std::int64_t batch_stride, row_stride;
};
inline HeadsPointer pointer_of(const ConstHeads& x) {
  return {const_cast<void*>(x.data), x.batch_stride, x.row_stride};
}
template <class T>
__device__ __forceinline__ T* head_of(const HeadsPointer& x, int b, int h, int dim) {
  return static_cast<T*>(x.data) + b * x.batch_stride + static_cast<std::int64_t>(h) * dim;
}

struct AttentionExtents {
  int batch, queries, keys, heads, kv_heads, dim;
  int window;  // keys a query sees, itself included; as many as there are when there is no window
  float scale, dropout;
  int first_sample;  // in the whole batch, of which these may be a part: dropout counts weights from its beginning
  RngKey key;

  AttentionExtents(const ConstHeads& q, const ConstHeads& k, const AttentionOptions& options, std::int64_t first = 0)
      : batch(static_cast<int>(q.batch)),
        queries(static_cast<int>(q.rows)),
        keys(static_cast<int>(k.rows)),
        heads(static_cast<int>(q.heads)),
        kv_heads(static_cast<int>(k.heads)),
        dim(static_cast<int>(q.head_dim)),
        window(options.window > 0 && options.window < k.rows ? static_cast<int>(options.window)
                                                             : static_cast<int>(k.rows)),
        scale(options.scale),
        dropout(options.dropout),
        first_sample(static_cast<int>(first)),
        key(options.key) {}

  __host__ __device__ int group() const { return heads / kv_heads; }
  // Query i stands at position i + offset(); it sees key j when 0 <= position − j < window.
  __host__ __device__ int offset() const { return keys - queries; }
  __host__ __device__ bool sees(int i, int j) const {
    const int distance = i + offset() - j;
    return distance >= 0 && distance < window;
  }
  // All of queries [i, i + n) see all of keys [j, j + m).
  __host__ __device__ bool all_see(int i, int n, int j, int m) const {
    return i + offset() >= j + m - 1 && i + n - 1 + offset() - j < window;
  }
  // None of these sees any of those.
  __host__ __device__ bool none_sees(int i, int n, int j, int m) const {
    return i + n - 1 + offset() < j || i + offset() - (j + m - 1) >= window;
  }
  // The keys that any of queries [i, i + n) sees.
  __host__ __device__ int first_key(int i) const {
    return i + offset() - window + 1 > 0 ? i + offset() - window + 1 : 0;
  }
  __host__ __device__ int end_key(int i, int n) const { return i + n + offset() < keys ? i + n + offset() : keys; }
  // The queries that see any of keys [j, j + m); there are as many queries as keys.
  __host__ __device__ int first_query(int j) const { return j - offset() > 0 ? j - offset() : 0; }
  __host__ __device__ int end_query(int j, int m) const {
    const std::int64_t end = std::int64_t{j} + m - 1 + window - offset();
    return end < queries ? static_cast<int>(end) : queries;
  }
};

struct AttentionForward {
  AttentionExtents x;
  HeadsPointer q, k, v, out;
  float* log_sums;  // (batch, heads, queries), or null
};

struct AttentionGradients {
  AttentionExtents x;
  HeadsPointer q, k, v, out, dout, dq, dk, dv;
  const float* log_sums;
  float* delta;  // (batch, heads, queries): the sum of out·dout of each row
};

}  // namespace zeepo::cuda
