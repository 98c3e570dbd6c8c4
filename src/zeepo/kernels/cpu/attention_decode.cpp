#include "zeepo/kernels/cpu/attention_decode.h"

#include <cmath>
#include <limits>

#include "zeepo/kernels/cpu/attention_block.h"
#include "zeepo/kernels/cpu/scratch.h"

namespace zeepo::cpu {
namespace {

// One block of queries. What forward_block of attention.cpp does for one block of keys after the other is done here for
// all of them at once, in three passes: products and their maxima; weights, with the maximum of the blocks so far, and
// their sums; the sums put together in order.
class Decode {
 public:
  Decode(const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out, View log_sums,
         const AttentionOptions& options, const Mask& mask, Range queries)
      : q_(q),
        k_(k),
        v_(v),
        out_(out),
        log_sums_(log_sums.as<float>()),
        scale_(options.scale),
        mask_(mask),
        queries_(queries),
        seen_(mask.keys_of(queries)),
        first_key_(mask.first_key(queries)),
        blocks_(blocks_of(seen_.end - first_key_, kKeys)) {
    const std::int64_t rows = q.batch * k.heads * this->rows();
    Carve carve(scratch<Scratch::call>(line_aligned(rows * blocks_ * kKeys) +
                                       line_aligned(rows * blocks_ * q.head_dim) + 2 * line_aligned(rows * blocks_)));
    weights_ = carve(rows * blocks_ * kKeys);
    values_ = carve(rows * blocks_ * q.head_dim);
    maxima_ = carve(rows * blocks_);
    sums_ = carve(rows * blocks_);
  }

  void run(ThreadPool& pool) {
    const std::int64_t heads = q_.batch * k_.heads;
    const auto all_blocks = [&](std::int64_t head, auto pass) {
      for (std::int64_t block = 0; block < blocks_; ++block) (this->*pass)(head, block);
    };
    constexpr std::int64_t kEnough = 4;  // tasks a thread, so that none waits long for another
    if (blocks_ == 1 || heads >= kEnough * pool.threads())
      return pool.run(heads, [&](std::int64_t head) {
        all_blocks(head, &Decode::multiply_keys);
        all_blocks(head, &Decode::add_values);
        put_together(head);
      });
    pool.run(heads * blocks_, [&](std::int64_t i) { multiply_keys(i / blocks_, i % blocks_); });
    pool.run(heads * blocks_, [&](std::int64_t i) { add_values(i / blocks_, i % blocks_); });
    pool.run(heads, [&](std::int64_t head) { put_together(head); });
  }

 private:
  std::int64_t group() const { return q_.heads / k_.heads; }
  // Those of a key head: query i of head h is row (i − queries.begin) · group + h % group.
  std::int64_t rows() const { return queries_.size() * group(); }
  std::int64_t query(std::int64_t row) const { return queries_.begin + row / group(); }
  // The place of a row's block among all.
  std::int64_t place(std::int64_t head, std::int64_t row, std::int64_t block) const {
    return (head * rows() + row) * blocks_ + block;
  }
  // The keys of a block that any of the queries sees.
  Range keys_of(std::int64_t block) const {
    const std::int64_t begin = first_key_ + block * kKeys;
    return {std::max(begin, seen_.begin), std::min(begin + kKeys, seen_.end)};
  }
  FewRows product_with(const ConstHeads& x, std::int64_t head, Range keys) const {
    FewRows w{};
    w.b = at(x.data, x.dtype,
             head / k_.heads * x.batch_stride + keys.begin * x.row_stride + head % k_.heads * x.head_dim);
    w.dtype = x.dtype;
    w.b_stride = x.row_stride;
    w.rows = rows();
    return w;
  }

  void multiply_keys(std::int64_t head, std::int64_t block) {
    const Range keys = keys_of(block);
    const std::int64_t width = group() * q_.head_dim;
    float* q = scratch(rows() * q_.head_dim);
    for (std::int64_t i = 0; i < queries_.size(); ++i) {
      const std::int64_t offset =
          head / k_.heads * q_.batch_stride + (queries_.begin + i) * q_.row_stride + head % k_.heads * width;
      widen(at(q_.data, q_.dtype, offset), q_.dtype, width, q + i * width);
    }
    FewRows w = product_with(k_, head, keys);
    w.a = q;
    w.a_stride = q_.head_dim;
    w.contiguous_k = true;
    w.columns = keys.size();
    w.depth = q_.head_dim;
    w.sums = weights_ + place(head, 0, block) * kKeys;
    w.sums_stride = blocks_ * kKeys;
    multiply(w);
    for (std::int64_t r = 0; r < rows(); ++r) {
      const Visible visible = mask_.visible(query(r), keys);
      maxima_[place(head, r, block)] =
          scale_ * largest_of(w.sums + r * w.sums_stride + visible.begin, visible.end - visible.begin);
    }
  }

  void add_values(std::int64_t head, std::int64_t block) {
    const Range keys = keys_of(block);
    FewRows w = product_with(v_, head, keys);
    w.a = weights_ + place(head, 0, block) * kKeys;
    w.a_stride = blocks_ * kKeys;
    w.contiguous_k = false;
    w.columns = q_.head_dim;
    w.depth = keys.size();
    w.sums = values_ + place(head, 0, block) * q_.head_dim;
    w.sums_stride = blocks_ * q_.head_dim;
    for (std::int64_t r = 0; r < rows(); ++r) {
      float* row = weights_ + place(head, r, block) * kKeys;
      RunningSoftmax state{largest_before(head, r, block), 0};
      softmax_block(row, keys.size(), mask_.visible(query(r), keys), scale_, state);
      sums_[place(head, r, block)] = state.sum;
    }
    multiply(w);
  }

  float largest_before(std::int64_t head, std::int64_t row, std::int64_t block) const {
    float max = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < block; ++i) max = std::max(max, maxima_[place(head, row, i)]);
    return max;
  }

  void put_together(std::int64_t head) {
    const std::int64_t dim = q_.head_dim, b = head / k_.heads;
    for (std::int64_t r = 0; r < rows(); ++r) {
      const std::int64_t h = head % k_.heads * group() + r % group(), first = place(head, r, 0);
      float* total = values_ + first * dim;
      RunningSoftmax state{maxima_[first], sums_[first]};
      for (std::int64_t i = 1; i < blocks_; ++i) {
        const float max = std::max(state.max, maxima_[first + i]);
        const float correction = state.sum > 0 ? std::exp(state.max - max) : 1.0f;
        for (std::int64_t d = 0; d < dim; ++d) total[d] = total[d] * correction + total[i * dim + d];
        state = {max, state.sum * correction + sums_[first + i]};
      }
      finish_row(total, state.sum, dim);
      narrow(total, dim, head_row(out_, b, h, query(r)), out_.dtype);
      if (log_sums_) log_sums_[(b * q_.heads + h) * q_.rows + query(r)] = state.max + std::log(state.sum);
    }
  }

  ConstHeads q_, k_, v_;
  Heads out_;
  float* log_sums_;
  float scale_;
  Mask mask_;
  Range queries_, seen_;
  std::int64_t first_key_, blocks_;
  float *weights_, *values_, *maxima_, *sums_;  // of every row and block
};

}  // namespace

void attention_decode(CpuStream& stream, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                      const Heads& out, View log_sums, const AttentionOptions& options) {
  const Mask mask(q, k, options);
  for (std::int64_t i = 0; i < mask.query_blocks(q.rows); ++i)
    Decode(q, k, v, out, log_sums, options, mask, mask.query_block(i, q.rows)).run(stream.pool());
}

}  // namespace zeepo::cpu
