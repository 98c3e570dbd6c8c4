// With BatchInvariant::yes a row of a result has the same bits whatever other rows there are.
#include "tests/kernels/cuda/cuda_checks.h"
#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace {

class CudaCompany : public ::testing::Test {
 protected:
  CudaCompany() { gpu().set_batch_invariant(BatchInvariant::yes); }
  ~CudaCompany() override { gpu().set_batch_invariant(BatchInvariant::no); }
};

View rows_of(View x, std::int64_t begin, std::int64_t rows) {
  const std::int64_t width = x.shape[-1];
  return {x.as<std::byte>() + static_cast<std::size_t>(begin * width) * size_of(x.dtype), x.dtype, {rows, width}};
}

std::vector<std::byte> part_of(const TypedValues& x, std::int64_t begin, std::int64_t count) {
  const std::size_t size = size_of(x.view().dtype);
  const auto first = x.bytes().begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(begin) * size);
  return {first, first + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(count) * size)};
}

// The shapes of a small Llama's layers, and a long k with few columns, which alone would be split.
TEST_F(CudaCompany, ARowOfAProductIsTheSameAlone) {
  constexpr std::int64_t kRows = 1000;
  for (const DType dtype : kFloatTypes)
    for (const auto& [n, k] : {std::pair{1536, 1024}, {1024, 2816}, {256, 8192}, {32000, 512}, {88, 40}})
      for (const Transpose turn : {Transpose::no, Transpose::yes})
        for (const bool with_bias : {false, true}) {
          const auto a = Twin::random(dtype, {kRows, k}, 1), bias = Twin::random(dtype, {n}, 3);
          const auto b = Twin::random(dtype, turn == Transpose::yes ? Shape{n, k} : Shape{k, n}, 2);
          const Twin whole(dtype, {kRows, n}), part(dtype, {kRows, n});
          const MatmulOptions options{.b = turn, .bias = with_bias ? bias.view() : View{}};
          matmul(gpu(), a.view(), b.view(), whole.view(), options);
          const TypedValues expected = whole.back();
          for (const std::int64_t rows : {1, 2, 7, 8, 33, 64, 129, 500}) {
            const std::int64_t first = (rows * 37) % (kRows - rows);
            matmul(gpu(), rows_of(a.view(), first, rows), b.view(), rows_of(part.view(), first, rows), options);
            EXPECT_TRUE(part_of(part.back(), first * n, rows * n) == part_of(expected, first * n, rows * n))
                << name_of_case(dtype, rows, n, k) << " from row " << first << (turn == Transpose::yes ? " turned" : "")
                << (with_bias ? " with a bias" : "");
          }
        }
}

struct Case {
  std::int64_t batch, time, heads, kv_heads, dim, window;
};

// Queries [first, first + queries) of sequences [b, b + batch), to what each of them sees.
TypedValues attend(const Case& t, const Twin& qkv, DType dtype, std::int64_t b, std::int64_t batch, std::int64_t first,
                   std::int64_t queries) {
  const std::int64_t width = (t.heads + 2 * t.kv_heads) * t.dim;
  const auto part = [&](std::int64_t column, std::int64_t heads, std::int64_t begin, std::int64_t rows) {
    Heads x = heads_of(qkv.view(), (b * t.time + begin) * width + column, heads, t.dim);
    x.batch = batch;
    x.rows = rows;
    return x;
  };
  const Twin out(dtype, {batch, queries, t.heads * t.dim}), log_sums(DType::f32, {batch, t.heads, queries});
  attention(gpu(), part(0, t.heads, first, queries), part(t.heads * t.dim, t.kv_heads, 0, first + queries),
            part((t.heads + t.kv_heads) * t.dim, t.kv_heads, 0, first + queries),
            heads_of(out.view(), 0, t.heads, t.dim), log_sums.view(),
            {.scale = 1 / std::sqrt(static_cast<float>(t.dim)), .window = t.window});
  return out.back();
}

TEST_F(CudaCompany, AQueryAttendsTheSameAlone) {
  for (const DType dtype : kFloatTypes)
    for (const Case& t : {Case{2, 700, 4, 2, 64, 0}, Case{2, 600, 4, 4, 128, 0}, Case{1, 600, 4, 1, 128, 300},
                          Case{3, 400, 2, 2, 40, 33}, Case{1, 300, 2, 1, 256, 0}, Case{1, 500, 2, 2, 17, 100}}) {
      const auto qkv = Twin::random(dtype, {t.batch, t.time, (t.heads + 2 * t.kv_heads) * t.dim}, 1);
      const TypedValues whole = attend(t, qkv, dtype, 0, t.batch, 0, t.time);
      const std::int64_t width = t.heads * t.dim;
      for (const std::int64_t chunk : {1, 3, 9, 64, 130})
        for (std::int64_t first = 0; first < t.time; first += std::max<std::int64_t>(chunk, 47)) {
          const std::int64_t queries = std::min(chunk, t.time - first), b = first % t.batch;
          const TypedValues got = attend(t, qkv, dtype, b, 1, first, queries);
          ASSERT_TRUE(got.bytes() == part_of(whole, (b * t.time + first) * width, queries * width))
              << name_of_case(dtype, t.time, t.dim, t.window) << ", " << queries << " queries from " << first;
        }
    }
}

}  // namespace
}  // namespace zeepo
