#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/check_attention.h"
#include "zeepo/kernels/cpu/attention_block.h"
#include "zeepo/kernels/cpu/scratch.h"

namespace zeepo {
namespace cpu {
namespace {

// With this many (batch, key head) pairs, one task each keeps the cores busy.
constexpr std::int64_t kEnoughHeads = 8;

struct Backward {
  AttentionBackward x;
  AttentionOptions options;
  Mask mask;
  std::int64_t group() const { return x.q.heads / x.k.heads; }
};

// The weights and the gradient of the products of one block of queries against one block of keys: what all three
// gradients are made of. Sums are kept in fp32 by the caller, who says which block comes next.
class Block {
 public:
  explicit Block(const Backward& f) : f_(f) {
    const std::int64_t dim = f.x.q.head_dim;
    Carve carve(scratch(2 * kQueries * kKeys + 5 * kQueries * dim + 4 * kKeys * dim + kKeys + kQueries + 16 * 12));
    weights_ = carve(kQueries * kKeys);
    dproducts_ = carve(kQueries * kKeys);
    for (float** buffer : {&widened_.q, &widened_.dout, &widened_.out, &dq}) *buffer = carve(kQueries * dim);
    for (float** buffer : {&widened_.k, &widened_.v, &dk, &dv}) *buffer = carve(kKeys * dim);
    keep_ = carve(kKeys);
    delta_ = carve(kQueries);
  }

  void queries(std::int64_t b, std::int64_t h, Range range) {
    b_ = b, h_ = h, queries_ = range;
    q = head_rows(f_.x.q, b, h, range, widened_.q);
    dout = head_rows(f_.x.dout, b, h, range, widened_.dout);
    const Operand out = head_rows(f_.x.out, b, h, range, widened_.out);
    for (std::int64_t r = 0; r < range.size(); ++r)
      delta_[r] = dot(dout.data + r * dout.stride, out.data + r * out.stride, f_.x.q.head_dim);
  }

  void keys(std::int64_t b, std::int64_t kv, Range range) {
    keys_ = range;
    k = head_rows(f_.x.k, b, kv, range, widened_.k);
    v_ = head_rows(f_.x.v, b, kv, range, widened_.v);
  }

  void multiply_out() {
    const std::int64_t rows = queries_.size(), columns = keys_.size(), dim = f_.x.q.head_dim;
    gemm(rows, columns, dim, q, transposed(k), Write::overwrite, weights_, kKeys);
    gemm(rows, columns, dim, dout, transposed(v_), Write::overwrite, dproducts_, kKeys);
    const float* log_sums = f_.x.log_sums.as<float>() + (b_ * f_.x.q.heads + h_) * f_.x.q.rows + queries_.begin;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t i = queries_.begin + r;
      const bool drop = f_.options.dropout > 0;
      if (drop) {
        const std::int64_t first = ((b_ * f_.x.q.heads + h_) * f_.x.q.rows + i) * f_.x.k.rows + keys_.begin;
        dropout_factors(f_.options.key, static_cast<std::uint64_t>(first), columns, f_.options.dropout, keep_);
      }
      softmax_backward_block(weights_ + r * kKeys, dproducts_ + r * kKeys, drop ? keep_ : nullptr, columns,
                             f_.mask.visible(i, keys_), f_.options.scale, log_sums[r], delta_[r]);
    }
  }

  void add_dq(float* to, std::int64_t stride, Write write) const {
    gemm(queries_.size(), f_.x.q.head_dim, keys_.size(), {dproducts_, kKeys}, k, write, to, stride);
  }
  void add_dk_dv(float* to_dk, std::int64_t dk_stride, float* to_dv, std::int64_t dv_stride, Write write) const {
    const std::int64_t rows = keys_.size(), dim = f_.x.q.head_dim, depth = queries_.size();
    gemm(rows, dim, depth, transposed({dproducts_, kKeys}), q, write, to_dk, dk_stride);
    gemm(rows, dim, depth, transposed({weights_, kKeys}), dout, write, to_dv, dv_stride);
  }

  Operand q{}, k{}, dout{};
  float *dq, *dk, *dv;  // room for sums: queries × head_dim, keys × head_dim

 private:
  const Backward& f_;
  Operand v_{};
  std::int64_t b_ = 0, h_ = 0;
  Range queries_{}, keys_{};
  struct {
    float *q, *k, *v, *dout, *out;
  } widened_;  // room for rows that are not fp32
  float *weights_, *dproducts_, *keep_, *delta_;
};

// Five products a block: one task has a key head and all its queries to itself, and sums into the gradients in place.
void whole_key_head(const Backward& f, std::int64_t b, std::int64_t kv) {
  Block block(f);
  const Heads &dq = f.x.dq, &dk = f.x.dk, &dv = f.x.dv;
  for (const Heads* x : {&dk, &dv})
    for (std::int64_t j = 0; j < x->rows; ++j)
      std::fill_n(static_cast<float*>(head_row(*x, b, kv, j)), x->head_dim, 0.0f);
  for (std::int64_t h = kv * f.group(); h < (kv + 1) * f.group(); ++h) {
    for (std::int64_t i = 0; i < blocks_of(f.x.q.rows, kQueries); ++i) {
      const Range queries = block_range(i, kQueries, f.x.q.rows), all = f.mask.keys_of(queries);
      block.queries(b, h, queries);
      Write write = Write::overwrite;
      for (std::int64_t begin = all.begin; begin < all.end; begin += kKeys, write = Write::add) {
        const Range keys{begin, std::min(all.end, begin + kKeys)};
        block.keys(b, kv, keys);
        block.multiply_out();
        block.add_dq(static_cast<float*>(head_row(dq, b, h, queries.begin)), dq.row_stride, write);
        block.add_dk_dv(static_cast<float*>(head_row(dk, b, kv, begin)), dk.row_stride,
                        static_cast<float*>(head_row(dv, b, kv, begin)), dv.row_stride, Write::add);
      }
    }
  }
}

// With few heads, or sums that the output cannot hold: dq by blocks of queries, then dk and dv by blocks of keys. Seven
// products a block, but as many tasks as there are blocks.
void query_block(const Backward& f, std::int64_t b, std::int64_t h, Range queries) {
  Block block(f);
  block.queries(b, h, queries);
  const Range all = f.mask.keys_of(queries);
  const std::int64_t dim = f.x.q.head_dim;
  Write write = Write::overwrite;
  for (std::int64_t begin = all.begin; begin < all.end; begin += kKeys, write = Write::add) {
    block.keys(b, h / f.group(), {begin, std::min(all.end, begin + kKeys)});
    block.multiply_out();
    block.add_dq(block.dq, dim, write);
  }
  narrow_block(block.dq, queries.size(), dim, head_row(f.x.dq, b, h, queries.begin), f.x.dq.dtype, f.x.dq.row_stride);
}

void key_block(const Backward& f, std::int64_t b, std::int64_t kv, Range keys) {
  Block block(f);
  block.keys(b, kv, keys);
  const Range all = f.mask.queries_of(keys, f.x.q.rows);
  const std::int64_t dim = f.x.q.head_dim;
  Write write = Write::overwrite;
  for (std::int64_t h = kv * f.group(); h < (kv + 1) * f.group(); ++h) {
    for (std::int64_t begin = all.begin; begin < all.end; begin += kQueries, write = Write::add) {
      block.queries(b, h, {begin, std::min(all.end, begin + kQueries)});
      block.multiply_out();
      block.add_dk_dv(block.dk, dim, block.dv, dim, write);
    }
  }
  const Heads &dk = f.x.dk, &dv = f.x.dv;
  narrow_block(block.dk, keys.size(), dim, head_row(dk, b, kv, keys.begin), dk.dtype, dk.row_stride);
  narrow_block(block.dv, keys.size(), dim, head_row(dv, b, kv, keys.begin), dv.dtype, dv.row_stride);
}

}  // namespace
}  // namespace cpu

void attention_backward(CpuStream& stream, const AttentionBackward& x, const AttentionOptions& options) {
  using namespace cpu;
  check_attention_backward(x, options);
  const Backward f{x, options, Mask(x.q, x.k, options)};
  const std::int64_t key_heads = x.q.batch * x.k.heads, query_heads = x.q.batch * x.q.heads;
  if (x.q.dtype == DType::f32 && key_heads >= kEnoughHeads)
    return stream.pool().run(key_heads, [&](std::int64_t i) { whole_key_head(f, i / x.k.heads, i % x.k.heads); });
  // In both passes the blocks with the most to do come first.
  const std::int64_t query_blocks = blocks_of(x.q.rows, kQueries), key_blocks = blocks_of(x.k.rows, kKeys);
  stream.pool().run(query_blocks * query_heads, [&](std::int64_t task) {
    const std::int64_t block = query_blocks - 1 - task / query_heads, head = task % query_heads;
    query_block(f, head / x.q.heads, head % x.q.heads, block_range(block, kQueries, x.q.rows));
  });
  stream.pool().run(key_blocks * key_heads, [&](std::int64_t task) {
    const std::int64_t block = task / key_heads, head = task % key_heads;
    key_block(f, head / x.k.heads, head % x.k.heads, block_range(block, kKeys, x.k.rows));
  });
}

}  // namespace zeepo
