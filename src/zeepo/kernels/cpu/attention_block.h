// How attention is cut into blocks of queries and keys, and where a block's rows lie.
#pragma once

#include <algorithm>

#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/cpu/attention_rows.h"
#include "zeepo/kernels/cpu/gemm.h"
#include "zeepo/kernels/cpu/widen.h"

namespace zeepo::cpu {

// Queries are cut at multiples of kQueries of their positions. The keys that such a block of queries may see are cut
// into kKeys each, from the first on. So the cuts of one query depend on its position alone: not on where the call that
// brings it begins, nor on who comes with it.
inline constexpr std::int64_t kQueries = 64, kKeys = 256;

struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

inline std::int64_t blocks_of(std::int64_t extent, std::int64_t block) { return (extent + block - 1) / block; }
inline Range block_range(std::int64_t i, std::int64_t block, std::int64_t extent) {
  return {i * block, std::min(extent, (i + 1) * block)};
}

// Who sees whom: query i stands at position first_position + i.
struct Mask {
  std::int64_t keys, first_position, window;

  Mask(const ConstHeads& q, const ConstHeads& k, const AttentionOptions& options)
      : keys(k.rows), first_position(k.rows - q.rows), window(options.window > 0 ? options.window : k.rows) {}

  // The keys that any of these queries sees.
  Range keys_of(Range queries) const {
    return {std::max<std::int64_t>(0, first_position + queries.begin - window + 1), first_position + queries.end};
  }
  // The blocks of queries, and the i-th of them.
  std::int64_t query_blocks(std::int64_t queries) const {
    return blocks_of(first_position + queries, kQueries) - first_position / kQueries;
  }
  Range query_block(std::int64_t i, std::int64_t queries) const {
    const std::int64_t begin = (first_position / kQueries + i) * kQueries - first_position;
    return {std::max<std::int64_t>(0, begin), std::min(queries, begin + kQueries)};
  }
  // Where the blocks of keys of one block of queries begin.
  std::int64_t first_key(Range queries) const {
    const std::int64_t position = first_position + queries.begin;
    return std::max<std::int64_t>(0, position / kQueries * kQueries - window + 1);
  }
  // The queries that see any of these keys.
  Range queries_of(Range key_range, std::int64_t queries) const {
    return {std::max<std::int64_t>(0, key_range.begin - first_position),
            std::min(queries, key_range.end - 1 + window - first_position)};
  }
  // What query i sees of a block of keys, counted from the block's first.
  Visible visible(std::int64_t i, Range key_range) const {
    const Range all = keys_of({i, i + 1});
    const auto within = [&](std::int64_t key) {
      return std::clamp(key, key_range.begin, key_range.end) - key_range.begin;
    };
    return {within(all.begin), within(all.end)};
  }
};

// Rows of one head as an fp32 operand: in place, or widened into `buffer` (rows × head_dim).
inline Operand head_rows(const ConstHeads& x, std::int64_t b, std::int64_t h, Range rows, float* buffer) {
  const std::int64_t offset = b * x.batch_stride + rows.begin * x.row_stride + h * x.head_dim;
  if (x.dtype == DType::f32) return {x.as<float>() + offset, x.row_stride};
  widen_block(at(x.data, x.dtype, offset), x.dtype, x.row_stride, rows.size(), x.head_dim, buffer);
  return {buffer, x.head_dim};
}
inline void* head_row(const Heads& x, std::int64_t b, std::int64_t h, std::int64_t row) {
  return at(x.data, x.dtype, b * x.batch_stride + row * x.row_stride + h * x.head_dim);
}

inline Operand transposed(Operand x) { return {x.data, x.stride, Transpose::yes}; }

}  // namespace zeepo::cpu
