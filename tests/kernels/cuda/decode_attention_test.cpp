#include "zeepo/kernels/decode_attention.h"

#include "tests/kernels/cuda/cuda_checks.h"
#include "zeepo/kernels/copy_heads.h"
#include "zeepo/kernels/most_likely.h"
#include "zeepo/kernels/rotary.h"

namespace zeepo {
namespace {

struct Case {
  std::int64_t batch, length, heads, kv_heads, dim, window;
  bool rotated;
};

Heads cached(View all, const Case& t, std::int64_t begin, std::int64_t rows) {
  Heads part = heads_of(all, begin * all.shape[2], t.kv_heads, t.dim);
  part.rows = rows;
  return part;
}

TEST(CudaDecodeAttention, IsNearTheCpusSingleOperations) {
  for (const DType dtype : kFloatTypes)
    for (const Case& t : {Case{1, 1, 1, 1, 16, 0, true},
                          {2, 7, 4, 2, 64, 0, true},
                          {1, 65, 16, 2, 128, 0, true},
                          {3, 300, 5, 1, 48, 0, false},
                          {1, 1500, 16, 2, 128, 100, true},
                          {2, 1031, 3, 3, 80, 0, true},
                          {1, 5000, 8, 1, 128, 0, true},
                          {1, 4500, 12, 1, 32, 4400, false},
                          {1, 2000, 6, 3, 64, 0, true}}) {
      const std::int64_t width = (t.heads + 2 * t.kv_heads) * t.dim, room = t.length + 3;
      auto qkv = Twin::random(dtype, {t.batch, 1, width}, 1);
      auto keys = Twin::random(dtype, {t.batch, room, t.kv_heads * t.dim}, 2);
      auto values = Twin::random(dtype, {t.batch, room, t.kv_heads * t.dim}, 3);
      auto cosines = Twin::random(DType::f32, {1, t.dim / 2}, 4), sines = Twin::random(DType::f32, {1, t.dim / 2}, 5);
      Twin out(dtype, {t.batch, 1, t.heads * t.dim});
      const AttentionOptions options{.scale = 0.7f / std::sqrt(static_cast<float>(t.dim)), .window = t.window};
      const auto q_of = [&](View x) { return heads_of(x, 0, t.heads, t.dim); };
      const auto k_of = [&](View x) { return heads_of(x, t.heads * t.dim, t.kv_heads, t.dim); };
      const auto v_of = [&](View x) { return heads_of(x, (t.heads + t.kv_heads) * t.dim, t.kv_heads, t.dim); };

      DecodeAttention op{.q = q_of(qkv.view()),
                         .k = k_of(qkv.view()),
                         .v = v_of(qkv.view()),
                         .keys = cached(keys.view(), t, 0, t.length),
                         .values = cached(values.view(), t, 0, t.length),
                         .out = q_of(out.view()),
                         .options = options};
      op.out = heads_of(out.view(), 0, t.heads, t.dim);
      if (t.rotated) op.cosines = cosines.view(), op.sines = sines.view();
      const std::string what = fmt::format("{} {} x {} keys, {}/{} heads of {}, window {}", name_of(dtype), t.batch,
                                           t.length, t.heads, t.kv_heads, t.dim, t.window);
      ASSERT_TRUE(takes(gpu(), op)) << what;
      for (int run = 0; run < 2; ++run) attend(gpu(), op);  // the second finds what the first has left

      Threads cpu(2);
      auto& s = cpu.stream;
      const View x = qkv.on(s);
      Heads both = q_of(x);
      both.heads += t.kv_heads;
      if (t.rotated) rotate(s, both, cosines.on(s), sines.on(s), 0, Turn::forward);
      copy_heads(s, k_of(x), cached(keys.on(s), t, t.length - 1, 1));
      copy_heads(s, v_of(x), cached(values.on(s), t, t.length - 1, 1));
      attention(s, q_of(x), cached(keys.on(s), t, 0, t.length), cached(values.on(s), t, 0, t.length),
                heads_of(out.on(s), 0, t.heads, t.dim), View{}, options);
      keys.expect_near(1e-6, 1, what + ": keys");
      values.expect_same_bits(what + ": values");
      out.expect_near(5e-6, 3 + 4e4 * rounding_of(dtype), what);
    }
}

TEST(CudaDecodeAttention, ASequenceIsTheSameWhateverIsBesideIt) {
  constexpr std::int64_t kBatch = 3, kLength = 1200, kHeads = 8, kKeyHeads = 2, kDim = 128;
  const auto q = Twin::random(DType::bf16, {kBatch, 1, (kHeads + 2 * kKeyHeads) * kDim}, 1);
  const auto keys = Twin::random(DType::bf16, {kBatch, kLength, kKeyHeads * kDim}, 2);
  const auto values = Twin::random(DType::bf16, {kBatch, kLength, kKeyHeads * kDim}, 3);
  const auto attended = [&](std::int64_t first, std::int64_t batch) {
    const Twin out(DType::bf16, {batch, 1, kHeads * kDim});
    const auto part = [&](const Twin& x, std::int64_t column, std::int64_t heads) {
      Heads all = heads_of(x.view(), column, heads, kDim);
      all.data = all.as<std::uint16_t>() + first * all.batch_stride;
      all.batch = batch;
      return all;
    };
    attend(gpu(), {.q = part(q, 0, kHeads),
                   .k = part(q, kHeads * kDim, kKeyHeads),
                   .v = part(q, (kHeads + kKeyHeads) * kDim, kKeyHeads),
                   .keys = part(keys, 0, kKeyHeads),
                   .values = part(values, 0, kKeyHeads),
                   .out = heads_of(out.view(), 0, kHeads, kDim),
                   .options = {.scale = 0.1f}});
    return out.back();
  };
  const TypedValues together = attended(0, kBatch);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const TypedValues alone = attended(b, 1);
    for (std::int64_t i = 0; i < alone.elements(); ++i)
      ASSERT_EQ(alone[i], together[b * kHeads * kDim + i]) << "sequence " << b << ", element " << i;
  }
}

TEST(CudaMostLikely, IsTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const auto& [rows, n] : {std::pair{1, 1}, {3, 255}, {2, 151'936}, {40, 1000}}) {
      TypedValues values = TypedValues::random(dtype, {rows, n}, 7);
      if (rows == 40) {
        for (std::int64_t i = 0; i < n; ++i)
          values.set(i, -0.0f), values.set(n + i, -3), values.set(2 * n + i, -INFINITY);
        values.set(517, 0.0f);              // equal to all others: the first is chosen
        values.set(n + 600, -1);            // the largest below zero
        values.set(3 * n + 12, NAN);        // broken
        values.set(4 * n + 800, INFINITY);  // no number
        for (const std::int64_t i : {998, 33, 640}) values.set(5 * n + i, 100);
      }
      Twin logits(values), ids(DType::i32, {rows});
      on_both([&](auto& s) { most_likely(s, logits.on(s), ids.on(s)); });
      ids.expect_same_bits(name_of_case(dtype, rows, n));
    }
}

}  // namespace
}  // namespace zeepo
