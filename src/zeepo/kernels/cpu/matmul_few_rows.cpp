#include "zeepo/kernels/cpu/matmul_few_rows.h"

#include <algorithm>

#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/widen.h"

namespace zeepo::cpu {
namespace {

// Columns of a task.
constexpr std::int64_t kColumns = 64;

struct Product {
  std::int64_t m, n, k, piece;
  const float* a;
  std::int64_t a_stride;
  ConstView b;
  View c;
  MatmulOptions options;

  std::int64_t begin_k() const { return options.part.begin; }
  std::int64_t whole_k() const { return options.part.whole ? options.part.whole : k; }
  void* c_row(std::int64_t row, std::int64_t column) const {
    return at(c.data, c.dtype, row * (options.c_stride ? options.c_stride : n) + column);
  }
  float* open_row(std::int64_t row, std::int64_t column) const {
    return options.part.open.as<float>() + row * n + column;
  }
};

// Some columns of the result, and where their sums are: of the piece of k at hand, and of the pieces before it.
struct Columns {
  std::int64_t begin, count;
  float *chains, *totals;  // (m, kColumns)
};

// The chains over [begin, end) of k, which may begin inside a piece.
void multiply_piece(const Product& p, const Columns& w, std::int64_t begin, std::int64_t end) {
  const bool open = begin % p.piece != 0, contiguous_k = p.options.b == Transpose::yes;
  for (std::int64_t r = 0; open && r < p.m; ++r) std::copy_n(p.open_row(r, w.begin), w.count, w.chains + r * kColumns);
  const std::int64_t k = begin - p.begin_k(), stride = contiguous_k ? p.k : p.n;
  multiply({.a = p.a + k,
            .a_stride = p.a_stride,
            .b = at(p.b.data, p.b.dtype, contiguous_k ? w.begin * stride + k : k * stride + w.begin),
            .dtype = p.b.dtype,
            .b_stride = stride,
            .contiguous_k = contiguous_k,
            .rows = p.m,
            .columns = w.count,
            .depth = end - begin,
            .sums = w.chains,
            .sums_stride = kColumns,
            .open = open});
}

// The pieces before the first one of this call: in c, if there are any; else what the caller wants.
void start_totals(const Product& p, const Columns& w, bool first_of_whole) {
  for (std::int64_t r = 0; r < p.m; ++r) {
    float* total = w.totals + r * kColumns;
    if (first_of_whole && p.options.bias)
      widen(at(p.options.bias.data, p.options.bias.dtype, w.begin), p.options.bias.dtype, w.count, total);
    else
      widen(p.c_row(r, w.begin), p.c.dtype, w.count, total);
  }
}

void multiply_columns(const Product& p, const Columns& w) {
  const std::int64_t all_end = p.begin_k() + p.k;
  bool any_total = false;
  std::int64_t begin = p.begin_k();
  do {
    const std::int64_t end = std::min(all_end, (begin / p.piece + 1) * p.piece);
    multiply_piece(p, w, begin, end);
    if (end % p.piece != 0 && end != p.whole_k()) {  // the next part goes on with it
      for (std::int64_t r = 0; r < p.m; ++r) std::copy_n(w.chains + r * kColumns, w.count, p.open_row(r, w.begin));
      break;
    }
    const bool first_of_whole = begin < p.piece;
    if (first_of_whole && !p.options.bias && p.options.write == Write::overwrite) {
      std::copy_n(w.chains, p.m * kColumns, w.totals);
    } else {
      if (!any_total) start_totals(p, w, first_of_whole);
      for (std::int64_t i = 0; i < p.m * kColumns; ++i) w.totals[i] += w.chains[i];
    }
    any_total = true;
    begin = end;
  } while (begin < all_end);
  for (std::int64_t r = 0; any_total && r < p.m; ++r)
    narrow(w.totals + r * kColumns, w.count, p.c_row(r, w.begin), p.c.dtype);
}

}  // namespace

void matmul_few_rows(CpuStream& stream, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t piece, ConstView a,
                     ConstView b, View c, const MatmulOptions& options) {
  Product p{m, n, k, piece, a.as<float>(), options.a_stride ? options.a_stride : k, b, c, options};
  if (a.dtype != DType::f32) {
    float* wide = scratch<Scratch::call>(m * k);
    for (std::int64_t r = 0; r < m; ++r) widen(at(a.data, a.dtype, r * p.a_stride), a.dtype, k, wide + r * k);
    p.a = wide;
    p.a_stride = k;
  }
  stream.pool().for_range(n, kColumns, [&](std::int64_t begin, std::int64_t end) {
    Carve carve(scratch(2 * line_aligned(m * kColumns)));
    float *chains = carve(m * kColumns), *totals = carve(m * kColumns);
    multiply_columns(p, {begin, end - begin, chains, totals});
  });
}

}  // namespace zeepo::cpu
