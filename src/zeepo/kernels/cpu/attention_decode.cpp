#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/attention_decode.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "zeepo/kernels/cpu/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

// products[r·stride + j] = q[r] · k[j], for `rows` queries (fp32) and `keys` keys.
template <class T>
void key_products(const float* q, std::int64_t rows, const T* k, std::int64_t k_stride, std::int64_t keys,
                  std::int64_t dim, float* products, std::int64_t stride) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < keys; ++j, k += k_stride) {
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* query = q + r * dim;
      auto sums = hn::Zero(d);
      std::int64_t i = 0;
      for (; i + lanes <= dim; i += lanes) sums = hn::MulAdd(hn::LoadU(d, query + i), load(d, k + i), sums);
      float sum = hn::GetLane(hn::SumOfLanes(d, sums));
      for (; i < dim; ++i) sum += query[i] * to_float(k[i]);
      products[r * stride + j] = sum;
    }
  }
}

// sums[r] += weights[r][j] · v[j], over j.
template <class T>
void add_values(const float* weights, std::int64_t stride, std::int64_t rows, const T* v, std::int64_t v_stride,
                std::int64_t keys, std::int64_t dim, float* sums) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t j = 0; j < keys; ++j, v += v_stride) {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* sum = sums + r * dim;
      const auto weight = hn::Set(d, weights[r * stride + j]);
      std::int64_t i = 0;
      for (; i + lanes <= dim; i += lanes)
        hn::StoreU(hn::MulAdd(weight, load(d, v + i), hn::LoadU(d, sum + i)), d, sum + i);
      for (; i < dim; ++i) sum[i] += weights[r * stride + j] * to_float(v[i]);
    }
  }
}

void any_key_products(const float* q, std::int64_t rows, const void* k, DType dtype, std::int64_t k_stride,
                      std::int64_t keys, std::int64_t dim, float* products, std::int64_t stride) {
  const auto of = [&]<class T>(T) {
    key_products(q, rows, static_cast<const T*>(k), k_stride, keys, dim, products, stride);
  };
  return dtype == DType::f32 ? of(float{}) : dtype == DType::bf16 ? of(bf16{}) : of(f16{});
}

void add_any_values(const float* weights, std::int64_t stride, std::int64_t rows, const void* v, DType dtype,
                    std::int64_t v_stride, std::int64_t keys, std::int64_t dim, float* sums) {
  const auto of = [&]<class T>(T) {
    add_values(weights, stride, rows, static_cast<const T*>(v), v_stride, keys, dim, sums);
  };
  return dtype == DType::f32 ? of(float{}) : dtype == DType::bf16 ? of(bf16{}) : of(f16{});
}

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cmath>
#include <limits>

#include "zeepo/kernels/cpu/attention_block.h"
#include "zeepo/kernels/cpu/attention_decode.h"
#include "zeepo/kernels/cpu/scratch.h"

namespace zeepo::cpu {
namespace {

HWY_EXPORT(any_key_products);
HWY_EXPORT(add_any_values);

constexpr std::int64_t kKeys = 512;

struct Decode {
  ConstHeads q, k, v;
  Heads out;
  float* log_sums;
  AttentionOptions options;
  Mask mask;
  Range keys;           // all that any query sees
  std::int64_t pieces;  // of keys
  // For each row (b, h, i) and piece: the sum of weights · v (head_dim), then the softmax's max and sum.
  float* partials;
  std::int64_t partial_elements() const { return q.head_dim + 2; }
  float* partial(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t piece) const {
    return partials + (((b * q.heads + h) * q.rows + i) * pieces + piece) * partial_elements();
  }
};

// One piece of the keys for all queries that share key head `kv`.
void decode_piece(const Decode& f, std::int64_t b, std::int64_t kv, std::int64_t piece) {
  const std::int64_t dim = f.q.head_dim, group = f.q.heads / f.k.heads, rows = f.q.rows * group;
  const Range keys{f.keys.begin + piece * kKeys, std::min(f.keys.end, f.keys.begin + (piece + 1) * kKeys)};
  Carve carve(scratch(rows * (kKeys + 2 * dim) + 32));
  float* weights = carve(rows * kKeys);
  float* q = carve(rows * dim);
  float* sums = carve(rows * dim);
  for (std::int64_t i = 0; i < f.q.rows; ++i) {
    const std::int64_t offset = b * f.q.batch_stride + i * f.q.row_stride + kv * group * dim;
    widen(at(f.q.data, f.q.dtype, offset), f.q.dtype, group * dim, q + i * group * dim);
  }
  const auto first = [&](const ConstHeads& x) {
    return at(x.data, x.dtype, b * x.batch_stride + keys.begin * x.row_stride + kv * dim);
  };
  HWY_DYNAMIC_DISPATCH(any_key_products)
  (q, rows, first(f.k), f.k.dtype, f.k.row_stride, keys.size(), dim, weights, kKeys);
  std::fill_n(sums, rows * dim, 0.0f);
  RunningSoftmax state[8];
  for (std::int64_t r = 0; r < rows; ++r) {
    state[r] = {-std::numeric_limits<float>::infinity(), 0};
    softmax_block(weights + r * kKeys, keys.size(), f.mask.visible(r / group, keys), f.options.scale, state[r]);
  }
  HWY_DYNAMIC_DISPATCH(add_any_values)
  (weights, kKeys, rows, first(f.v), f.v.dtype, f.v.row_stride, keys.size(), dim, sums);
  for (std::int64_t r = 0; r < rows; ++r) {
    float* to = f.partial(b, kv * group + r % group, r / group, piece);
    std::copy_n(sums + r * dim, dim, to);
    to[dim] = state[r].max;
    to[dim + 1] = state[r].sum;
  }
}

// Puts the pieces of one row together, in order.
void merge(const Decode& f, std::int64_t b, std::int64_t h, std::int64_t i) {
  const std::int64_t dim = f.q.head_dim;
  float* total = f.partial(b, h, i, 0);
  for (std::int64_t piece = 1; piece < f.pieces; ++piece) {
    const float* next = f.partial(b, h, i, piece);
    const float max = std::max(total[dim], next[dim]);
    const float old_factor = std::exp(total[dim] - max), new_factor = std::exp(next[dim] - max);
    for (std::int64_t d = 0; d < dim; ++d) total[d] = total[d] * old_factor + next[d] * new_factor;
    total[dim] = max;
    total[dim + 1] = total[dim + 1] * old_factor + next[dim + 1] * new_factor;
  }
  multiply(total, 1 / total[dim + 1], dim);
  narrow(total, dim, head_row(f.out, b, h, i), f.out.dtype);
  if (f.log_sums) f.log_sums[(b * f.q.heads + h) * f.q.rows + i] = total[dim] + std::log(total[dim + 1]);
}

}  // namespace

void attention_decode(CpuStream& stream, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                      const Heads& out, View log_sums, const AttentionOptions& options) {
  const Mask mask(q, k, options);
  const Range keys = mask.keys_of({0, q.rows});
  Decode f{q, k, v, out, log_sums.as<float>(), options, mask, keys, blocks_of(keys.size(), kKeys), nullptr};
  f.partials = scratch<Scratch::call>(q.batch * q.heads * q.rows * f.pieces * f.partial_elements());
  stream.pool().run(q.batch * k.heads * f.pieces, [&](std::int64_t task) {
    const std::int64_t head = task / f.pieces;
    decode_piece(f, head / k.heads, head % k.heads, task % f.pieces);
  });
  for (std::int64_t b = 0; b < q.batch; ++b)
    for (std::int64_t h = 0; h < q.heads; ++h)
      for (std::int64_t i = 0; i < q.rows; ++i) merge(f, b, h, i);
}

}  // namespace zeepo::cpu
#endif
