#include "zeepo/ops/attention.h"

#include "zeepo/autograd/random_state.h"
#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/coded_heads.h"
#include "zeepo/kernels/copy_heads.h"
#include "zeepo/kernels/decode_attention.h"
#include "zeepo/kernels/norm.h"
#include "zeepo/kernels/rotary.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

struct QkvHeads {
  Heads q, k, v;
};

QkvHeads split(const Tensor& qkv, const HeadLayout& layout) {
  if (qkv.shape().rank() != 3 || qkv.shape()[2] != layout.width())
    throw Error("attention: qkv {} does not hold {} query and 2 x {} key and value heads of {}", qkv.shape().str(),
                layout.heads, layout.kv_heads, layout.head_dim);
  const std::int64_t query_width = layout.heads * layout.head_dim, key_width = layout.kv_heads * layout.head_dim;
  return {heads_of(qkv.view(), 0, layout.heads, layout.head_dim),
          heads_of(qkv.view(), query_width, layout.kv_heads, layout.head_dim),
          heads_of(qkv.view(), query_width + key_width, layout.kv_heads, layout.head_dim)};
}

Heads all_heads(const Tensor& x, const HeadLayout& layout) {
  return heads_of(x.view(), 0, layout.heads, layout.head_dim);
}

void rotate_both(const Tensor& qkv, const HeadLayout& layout, const Tensor& cosines, const Tensor& sines,
                 std::int64_t first_position, Turn turn) {
  Heads both = split(qkv, layout).q;
  both.heads += layout.kv_heads;  // which follow
  launch([&](auto& s) { rotate(s, both, cosines.view(), sines.view(), first_position, turn); });
}

}  // namespace

Tensor rotary(const Tensor& qkv, const HeadLayout& layout, const Tensor& cosines, const Tensor& sines,
              std::int64_t first_position) {
  if (first_position + qkv.shape()[1] > cosines.shape()[0])
    throw Error("rotary: position {} is past the {} that the model's table holds", first_position + qkv.shape()[1] - 1,
                cosines.shape()[0]);
  Tensor y = qkv.detached();
  rotate_both(y, layout, cosines, sines, first_position, Turn::forward);
  if (Tape* tape = Tape::recording({&qkv})) {
    tape->record({&y}, [=, dqkv = wanted_gradient(qkv)](std::span<Tensor> dy) {
      const Tensor d = writable(std::move(dy[0]));
      rotate_both(d, layout, cosines, sines, first_position, Turn::backward);
      dqkv->add(d);
    });
  }
  return y;
}

Tensor qk_norm(const Tensor& qkv, const HeadLayout& layout, const Tensor& query_weight, const Tensor& key_weight,
               float eps) {
  Tensor y(qkv.shape(), qkv.dtype());
  const std::int64_t rows = qkv.shape().rows();
  const Tensor query_rstd({rows, layout.heads}), key_rstd({rows, layout.kv_heads});
  const auto from = split(qkv, layout), to = split(y, layout);
  launch([&](auto& s) {
    rms_norm_heads(s, from.q, query_weight.view(), eps, to.q, query_rstd.view());
    rms_norm_heads(s, from.k, key_weight.view(), eps, to.k, key_rstd.view());
    copy_heads(s, from.v, to.v);
  });
  if (Tape* tape = Tape::recording({&qkv, &query_weight, &key_weight})) {
    tape->record(
        {&y}, [layout, dqkv = wanted_gradient(qkv), dquery_weight = wanted_gradient(query_weight),
               dkey_weight = wanted_gradient(key_weight), saved_qkv = tape->save(qkv),
               saved_query_weight = tape->save(query_weight), saved_key_weight = tape->save(key_weight),
               saved_query_rstd = tape->save(query_rstd), saved_key_rstd = tape->save(key_rstd)](std::span<Tensor> dy) {
          const Tensor x = saved_qkv(), d(x.shape(), x.dtype());
          const auto x_heads = split(x, layout), dy_heads = split(dy[0], layout), d_heads = split(d, layout);
          const auto backward = [](Heads dy_part, Heads x_part, const Saved& weight, const Saved& rstd, Heads dx_part,
                                   const std::shared_ptr<Gradient>& dweight) {
            const Tensor weights = weight(), rstds = rstd();
            const auto to_weight = target_of(dweight);
            launch([&](auto& s) {
              rms_norm_heads_backward(s, dy_part, x_part, weights.view(), rstds.view(), dx_part,
                                      to_weight.tensor.view(), to_weight.write);
            });
          };
          backward(dy_heads.q, x_heads.q, saved_query_weight, saved_query_rstd, d_heads.q, dquery_weight);
          backward(dy_heads.k, x_heads.k, saved_key_weight, saved_key_rstd, d_heads.k, dkey_weight);
          launch([&](auto& s) { copy_heads(s, dy_heads.v, d_heads.v); });
          if (dqkv) dqkv->add(d);
        });
  }
  return y;
}

Tensor attention(const Tensor& qkv, const HeadLayout& layout, AttentionOptions options) {
  const auto heads = split(qkv, layout);
  auto& random = RandomState::current();
  if (options.dropout > 0 && random.training)
    options.key = random.take();
  else
    options.dropout = 0;
  const std::int64_t batch = qkv.shape()[0], time = qkv.shape()[1];
  Tensor y({batch, time, layout.heads * layout.head_dim}, qkv.dtype());
  Tape* tape = Tape::recording({&qkv});
  const Tensor log_sums = tape ? Tensor({batch, layout.heads, time}) : Tensor();
  launch([&](auto& s) { attention(s, heads.q, heads.k, heads.v, all_heads(y, layout), log_sums.view(), options); });
  if (tape) {
    tape->record({&y}, [layout, options, dqkv = wanted_gradient(qkv), saved_qkv = tape->save(qkv),
                        saved_y = tape->save(y), saved_log_sums = tape->save(log_sums)](std::span<Tensor> dy) {
      const Tensor input = saved_qkv(), output = saved_y(), sums = saved_log_sums();
      const Tensor d(input.shape(), input.dtype());
      const auto in = split(input, layout), out = split(d, layout);
      launch([&](auto& s) {
        attention_backward(
            s,
            {in.q, in.k, in.v, all_heads(output, layout), all_heads(dy[0], layout), sums.view(), out.q, out.k, out.v},
            options);
      });
      dqkv->add(d);
    });
  }
  return y;
}

std::int64_t cached_width(std::int64_t kv_heads, std::int64_t head_dim, DType dtype) {
  if (dtype != DType::u8) return kv_heads * head_dim;
  if (head_dim % 2 != 0) throw Error("KV cache in int8: heads of {} values: must be an even number", head_dim);
  return kv_heads * coded_head_bytes(head_dim);
}

namespace {

// Rows of a cache's keys or values.
Heads cached(const Tensor& all, const HeadLayout& layout, std::int64_t begin, std::int64_t rows) {
  Heads part = heads_of(all.view(), begin * all.shape()[2], layout.kv_heads, all.shape()[2] / layout.kv_heads);
  part.rows = rows;
  return part;
}

void check_room(const Tensor& qkv, const LayerCache& cache) {
  const std::int64_t batch = qkv.shape()[0], length = cache.length + qkv.shape()[1];
  if (cache.keys.shape()[0] != batch || length > cache.keys.shape()[1])
    throw Error("attention: {} positions for {} sequences do not fit the cache {}", length, batch,
                cache.keys.shape().str());
}

}  // namespace

Tensor attention(const Tensor& qkv, const HeadLayout& layout, AttentionOptions options, LayerCache& cache) {
  options.dropout = 0;  // a cache is for generation
  const auto heads = split(qkv, layout);
  check_room(qkv, cache);
  const std::int64_t batch = qkv.shape()[0], time = qkv.shape()[1], length = cache.length + time;
  const auto cached = [&](const Tensor& all, std::int64_t begin, std::int64_t rows) {
    return zeepo::cached(all, layout, begin, rows);
  };
  Tensor y({batch, time, layout.heads * layout.head_dim}, qkv.dtype());
  if (cache.keys.dtype() == DType::u8) {
    // Room for as much as the cache can hold: a plan of the first positions is then that of all.
    const Tensor keys({batch, cache.keys.shape()[1], layout.kv_heads * layout.head_dim}, qkv.dtype());
    const Tensor values(keys.shape(), qkv.dtype());
    launch([&](auto& s) {
      encode_heads(s, heads.k, cached(cache.keys, cache.length, time));
      encode_heads(s, heads.v, cached(cache.values, cache.length, time));
      expand_heads(s, cached(cache.keys, 0, length), cached(keys, 0, length));
      expand_heads(s, cached(cache.values, 0, length), cached(values, 0, length));
      attention(s, heads.q, cached(keys, 0, length), cached(values, 0, length), all_heads(y, layout), View{}, options);
    });
  } else {
    launch([&](auto& s) {
      copy_heads(s, heads.k, cached(cache.keys, cache.length, time));
      copy_heads(s, heads.v, cached(cache.values, cache.length, time));
      attention(s, heads.q, cached(cache.keys, 0, length), cached(cache.values, 0, length), all_heads(y, layout),
                View{}, options);
    });
  }
  cache.length = length;
  return y;
}

Tensor rotary_attention(const Tensor& qkv, const HeadLayout& layout, const Tensor& cosines, const Tensor& sines,
                        const AttentionOptions& options, LayerCache& cache) {
  const auto heads = split(qkv, layout);
  check_room(qkv, cache);
  const std::int64_t batch = qkv.shape()[0], length = cache.length + 1;
  bool taken = false;
  Tensor y;
  if (qkv.shape()[1] == 1) {
    y = Tensor({batch, 1, layout.heads * layout.head_dim}, qkv.dtype());
    DecodeAttention op{.q = heads.q,
                       .k = heads.k,
                       .v = heads.v,
                       .cosines = cosines.view(),
                       .sines = sines.view(),
                       .keys = cached(cache.keys, layout, 0, length),
                       .values = cached(cache.values, layout, 0, length),
                       .out = all_heads(y, layout),
                       .options = options};
    op.options.dropout = 0;
    launch([&](auto& s) {
      taken = takes(s, op);
      if (taken) attend(s, op);
    });
  }
  if (!taken) y = Tensor();
  if (!taken) return attention(rotary(qkv, layout, cosines, sines, 0), layout, options, cache);
  cache.length = length;
  return y;
}

}  // namespace zeepo
