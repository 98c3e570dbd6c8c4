// Causal grouped-query attention over fused projections, and what is done to its heads before.
//
// qkv is (B, T, (heads + 2·kv_heads)·head_dim): all query heads, then all key heads, then all value heads.
#pragma once

#include "zeepo/kernels/attention.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

struct HeadLayout {
  std::int64_t heads, kv_heads, head_dim;
  std::int64_t width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// Rotates the query and key heads by their positions, first_position + t, in place: qkv must not be used afterwards.
// cosines, sines: fp32 (positions, head_dim/2)
Tensor rotary(const Tensor& qkv, const HeadLayout& layout, const Tensor& cosines, const Tensor& sines,
              std::int64_t first_position);

// RMS norm of every query and every key head by itself.   query_weight, key_weight: (head_dim)
Tensor qk_norm(const Tensor& qkv, const HeadLayout& layout, const Tensor& query_weight, const Tensor& key_weight,
               float eps);

// y: (B, T, heads·head_dim). options.dropout applies in training only; its key is drawn here.
Tensor attention(const Tensor& qkv, const HeadLayout& layout, AttentionOptions options);

// The extent of a row of keys or values in a KV cache of this type. DType::u8 is the type of coded heads
// (kernels/coded_heads.h), which are expanded for their use, one layer at a time.
std::int64_t cached_width(std::int64_t kv_heads, std::int64_t head_dim, DType dtype);

// Keys and values of the positions seen so far, of one layer.   keys, values: (B, capacity, cached_width)
struct LayerCache {
  Tensor keys, values;
  std::int64_t length = 0;
};
// The same after a cached beginning, without dropout: qkv holds positions [cache.length, cache.length + T), which join
// the cache.
Tensor attention(const Tensor& qkv, const HeadLayout& layout, AttentionOptions options, LayerCache& cache);
// The same of qkv before its rotation, which is changed by it or is not; one position at a time takes one kernel where
// the device has one.
Tensor rotary_attention(const Tensor& qkv, const HeadLayout& layout, const Tensor& cosines, const Tensor& sines,
                        const AttentionOptions& options, LayerCache& cache);

}  // namespace zeepo
