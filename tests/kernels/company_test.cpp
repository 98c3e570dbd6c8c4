// A row of a result has the same bits whatever other rows there are: with few rows and with many, on every instruction
// set.
#include <cmath>

#include "tests/kernels/each_target.h"
#include "tests/kernels/kernel_checks.h"
#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace {

std::vector<std::byte> part_of(const TypedValues& x, DType dtype, std::int64_t begin, std::int64_t count) {
  const auto* first = x.bytes().data() + static_cast<std::size_t>(begin) * size_of(dtype);
  return {first, first + static_cast<std::size_t>(count) * size_of(dtype)};
}

template <class V>
V rows_of(V view, std::int64_t begin, std::int64_t rows, std::int64_t width) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(view.data)>>, const std::byte, std::byte>;
  view.data = static_cast<Byte*>(view.data) + static_cast<std::size_t>(begin * width) * size_of(view.dtype);
  view.shape = {rows, width};
  return view;
}

void expect_rows_alone(DType dtype, DType result, std::int64_t n, std::int64_t k, Transpose turn, int variant) {
  constexpr std::int64_t kRows = 21;
  Threads threads(2);
  const auto a = TypedValues::random(dtype, {kRows, k}, 1), bias = TypedValues::random(dtype, {n}, 3);
  const auto b = TypedValues::random(dtype, turn == Transpose::yes ? Shape{n, k} : Shape{k, n}, 2);
  const auto before = TypedValues::random(result, {kRows, n}, 4);
  MatmulOptions options{.b = turn};
  if (variant == 1) options.bias = bias.view();
  if (variant == 2) options.write = Write::add;
  TypedValues whole = before;
  matmul(threads.stream, a.view(), b.view(), whole.view(), options);
  for (std::int64_t rows = 1; rows <= 9; ++rows)
    for (const std::int64_t first : {std::int64_t{5}, kRows - rows}) {
      TypedValues c = before;
      matmul(threads.stream, rows_of(a.view(), first, rows, k), b.view(), rows_of(c.view(), first, rows, n), options);
      ASSERT_EQ(part_of(c, result, first * n, rows * n), part_of(whole, result, first * n, rows * n))
          << name_of(dtype) << " into " << name_of(result) << ", " << rows << " rows from " << first << ", n " << n
          << ", k " << k << (turn == Transpose::yes ? ", turned" : "") << ", variant " << variant;
    }
}

TEST(Company, ARowOfAProductIsTheSameAlone) {
  for_each_target([](const char* target) {
    SCOPED_TRACE(target);
    for (const DType dtype : kFloatTypes)
      for (const auto& [n, k] : {std::pair{1, 1}, {16, 3}, {70, 37}, {129, 64}, {33, 100}, {65, 1031}, {20, 2100}})
        for (const Transpose turn : {Transpose::no, Transpose::yes})
          for (const int variant : {0, 1, 2}) {
            expect_rows_alone(dtype, dtype, n, k, turn, variant);
            if (dtype != DType::f32 && variant == 1) expect_rows_alone(dtype, DType::f32, n, k, turn, variant);
          }
  });
}

struct CompanyCase {
  std::int64_t batch, time, heads, kv_heads, dim, window;
};

std::ostream& operator<<(std::ostream& out, const CompanyCase& t) {
  return out << t.batch << " sequences of " << t.time << ", heads " << t.heads << "/" << t.kv_heads << " of " << t.dim
             << ", window " << t.window;
}

// Attention of queries [first, first + queries) of sequences [b, b + batch) to what each of them sees.
struct Attended {
  TypedValues out, log_sums;
};
Attended attend(CpuStream& stream, const CompanyCase& t, const TypedValues& qkv, DType dtype, std::int64_t b,
                std::int64_t batch, std::int64_t first, std::int64_t queries) {
  const std::int64_t width = (t.heads + 2 * t.kv_heads) * t.dim;
  const auto part = [&](std::int64_t column, std::int64_t heads, std::int64_t begin, std::int64_t rows) {
    ConstHeads x = heads_of(qkv.view(), (b * t.time + begin) * width + column, heads, t.dim);
    x.batch = batch;
    x.rows = rows;
    return x;
  };
  Attended r{TypedValues(dtype, {batch, queries, t.heads * t.dim}), TypedValues(DType::f32, {batch, t.heads, queries})};
  attention(stream, part(0, t.heads, first, queries), part(t.heads * t.dim, t.kv_heads, 0, first + queries),
            part((t.heads + t.kv_heads) * t.dim, t.kv_heads, 0, first + queries),
            heads_of(r.out.view(), 0, t.heads, t.dim), r.log_sums.view(),
            {.scale = 1 / std::sqrt(static_cast<float>(t.dim)), .window = t.window});
  return r;
}

// Queries alone, and in chunks that cross the blocks of queries and of keys.
void expect_queries_alone(const CompanyCase& t, DType dtype) {
  const std::int64_t width = t.heads * t.dim;
  const auto qkv = TypedValues::random(dtype, {t.batch, t.time, (t.heads + 2 * t.kv_heads) * t.dim}, 1, 2);
  Threads two(2), three(3);
  const Attended whole = attend(two.stream, t, qkv, dtype, 0, t.batch, 0, t.time);
  for (const std::int64_t chunk : {1, 2, 3, 7, 9, 60, 130})
    for (std::int64_t first = 0; first < t.time; first += std::max<std::int64_t>(chunk, 29)) {
      const std::int64_t queries = std::min(chunk, t.time - first), b = first % t.batch;
      const Attended got = attend(first % 2 ? two.stream : three.stream, t, qkv, dtype, b, 1, first, queries);
      ASSERT_EQ(got.out.bytes(), part_of(whole.out, dtype, (b * t.time + first) * width, queries * width))
          << name_of(dtype) << " " << t << ", " << queries << " queries from " << first;
      for (std::int64_t h = 0; h < t.heads; ++h)
        ASSERT_EQ(part_of(got.log_sums, DType::f32, h * queries, queries),
                  part_of(whole.log_sums, DType::f32, (b * t.heads + h) * t.time + first, queries))
            << name_of(dtype) << " " << t << ", " << queries << " queries from " << first;
    }
}

TEST(Company, AQueryAttendsTheSameAlone) {
  for_each_target([](const char* target) {
    SCOPED_TRACE(target);
    for (const DType dtype : kFloatTypes)
      for (const CompanyCase& t :
           {CompanyCase{2, 530, 2, 2, 40, 0}, CompanyCase{3, 330, 4, 1, 16, 0}, CompanyCase{2, 400, 5, 5, 17, 33},
            CompanyCase{1, 650, 4, 2, 24, 300}, CompanyCase{2, 90, 8, 1, 8, 5}, CompanyCase{1, 80, 1, 1, 520, 0}})
        expect_queries_alone(t, dtype);
  });
}

}  // namespace
}  // namespace zeepo
