#include "zeepo/kernels/attention.h"

#include <cmath>
#include <limits>

#include "zeepo/kernels/check_attention.h"
#include "zeepo/kernels/cpu/attention_block.h"
#include "zeepo/kernels/cpu/attention_decode.h"
#include "zeepo/kernels/cpu/scratch.h"

namespace zeepo {
namespace cpu {

namespace {

struct Forward {
  ConstHeads q, k, v;
  Heads out;
  float* log_sums;  // may be null
  AttentionOptions options;
  Mask mask;
};

// One block of queries of one head, over all blocks of keys that it sees.
void forward_block(const Forward& f, std::int64_t b, std::int64_t h, Range queries) {
  const std::int64_t dim = f.q.head_dim, rows = queries.size(), kv = h / (f.q.heads / f.k.heads);
  Carve carve(scratch(kQueries * (kKeys + 2 * dim) + kKeys * (dim + 1) + 16));
  float* weights = carve(kQueries * kKeys);
  float* sums = carve(kQueries * dim);
  float* q_buffer = carve(kQueries * dim);
  float* kv_buffer = carve(kKeys * dim);
  float* keep = carve(kKeys);
  RunningSoftmax state[kQueries];
  std::fill_n(state, rows, RunningSoftmax{-std::numeric_limits<float>::infinity(), 0});

  const Operand q = head_rows(f.q, b, h, queries, q_buffer);
  const Range all{f.mask.first_key(queries), f.mask.keys_of(queries).end};
  for (std::int64_t begin = all.begin; begin < all.end; begin += kKeys) {
    const Range keys{begin, std::min(all.end, begin + kKeys)};
    const Operand k = head_rows(f.k, b, kv, keys, kv_buffer);
    gemm(rows, keys.size(), dim, q, transposed(k), Write::overwrite, weights, kKeys);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t i = queries.begin + r;
      float* row = weights + r * kKeys;
      const float correction = softmax_block(row, keys.size(), f.mask.visible(i, keys), f.options.scale, state[r]);
      if (begin > all.begin && correction != 1) multiply(sums + r * dim, correction, dim);
      if (f.options.dropout > 0) {
        const std::int64_t first = ((b * f.q.heads + h) * f.q.rows + i) * f.k.rows + keys.begin;
        dropout_factors(f.options.key, static_cast<std::uint64_t>(first), keys.size(), f.options.dropout, keep);
        multiply(row, keep, keys.size());
      }
    }
    const Operand v = head_rows(f.v, b, kv, keys, kv_buffer);
    const Write write = begin > all.begin ? Write::add : Write::overwrite;
    gemm(rows, dim, keys.size(), {weights, kKeys}, v, write, sums, dim);
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    finish_row(sums + r * dim, state[r].sum, dim);
    if (f.log_sums)
      f.log_sums[(b * f.q.heads + h) * f.q.rows + queries.begin + r] = state[r].max + std::log(state[r].sum);
  }
  narrow_block(sums, rows, dim, head_row(f.out, b, h, queries.begin), f.out.dtype, f.out.row_stride);
}

}  // namespace
}  // namespace cpu

void attention(CpuStream& stream, ConstHeads q, ConstHeads k, ConstHeads v, Heads out, View log_sums,
               const AttentionOptions& options) {
  using namespace cpu;
  check_attention(q, k, v, out, log_sums, options);
  if (few_queries(q, k, options)) return attention_decode(stream, q, k, v, out, log_sums, options);
  const Forward f{q, k, v, out, log_sums.as<float>(), options, Mask(q, k, options)};
  const std::int64_t blocks = f.mask.query_blocks(q.rows), heads = q.batch * q.heads;
  stream.pool().run(blocks * heads, [&](std::int64_t task) {
    // The last queries see the most keys: starting with them, no thread is left with a long task at the end.
    const std::int64_t block = blocks - 1 - task / heads, head = task % heads;
    forward_block(f, head / q.heads, head % q.heads, f.mask.query_block(block, q.rows));
  });
}

}  // namespace zeepo
