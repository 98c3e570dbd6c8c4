#include "zeepo/kernels/matmul.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/kernels/cpu/matmul_few_rows.h"
#include "zeepo/kernels/cpu/packed_gemm.h"
#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/widen.h"

namespace zeepo {
namespace {

using namespace cpu;

// Pieces of k: long ones touch the result less often, short ones keep a panel of b in the second cache.
constexpr std::int64_t kDepth = 1024;
// The product is done in chunks whose packed operands, and fp32 sums of a 16-bit result, have at most this many
// elements: 16 MiB each.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;
// A task's share of the result: small enough for many cores, large enough that a panel of b is used often.
constexpr std::int64_t kTaskRows = 120, kTaskColumns = 256;

struct Product {
  std::int64_t m, n, k;
  ConstView a, b;
  View c;
  MatmulOptions options;
};
struct Range {
  std::int64_t begin, end;
  std::int64_t size() const { return end - begin; }
};
// The part of a product whose panels of b are packed at the same time.
struct Chunk {
  Range rows, columns, depth;
};

std::int64_t pieces(std::int64_t extent, std::int64_t piece) { return (extent + piece - 1) / piece; }
Range nth(std::int64_t i, std::int64_t piece, Range all) {
  return {all.begin + i * piece, std::min(all.end, all.begin + (i + 1) * piece)};
}
// Equal pieces of at most `limit`.
std::int64_t equal_piece(std::int64_t extent, std::int64_t limit) { return pieces(extent, pieces(extent, limit)); }

Part part_of_a(const Product& p, Range rows, Range depth) {
  const bool along_k = p.options.a == Transpose::no;
  const std::int64_t offset = along_k ? rows.begin * p.k + depth.begin : depth.begin * p.m + rows.begin;
  return {at(p.a.data, p.a.dtype, offset), p.a.dtype, along_k ? p.k : p.m, along_k, rows.size(), depth.size()};
}
Part part_of_b(const Product& p, Range columns, Range depth) {
  const bool along_k = p.options.b == Transpose::yes;
  const std::int64_t offset = along_k ? columns.begin * p.k + depth.begin : depth.begin * p.n + columns.begin;
  return {at(p.b.data, p.b.dtype, offset), p.b.dtype, along_k ? p.k : p.n, along_k, columns.size(), depth.size()};
}

// One chunk: all threads pack both operands, then tiles of the result are multiplied out of the panels.
class ChunkProduct {
 public:
  ChunkProduct(const Product& p, const Chunk& chunk, std::int64_t depth)
      : p_(p),
        chunk_(chunk),
        depth_(depth),
        task_rows_(pieces(kTaskRows, width_.rows) * width_.rows),
        task_columns_(pieces(kTaskColumns, width_.columns) * width_.columns) {
    const std::int64_t rows = padded_rows(), columns = padded_columns(), k = chunk.depth.size();
    const bool narrow_sums = p.c.dtype != DType::f32;
    Carve carve(scratch<Scratch::call>(rows * k + k * columns + (narrow_sums ? rows * columns : 0) + 48));
    // First, where they stay from one chunk of k to the next, which may be shorter.
    sums_ = narrow_sums ? carve(rows * columns) : nullptr;
    a_ = carve(rows * k);
    b_ = carve(k * columns);
  }

  void run(ThreadPool& pool) {
    const std::int64_t depths = pieces(chunk_.depth.size(), depth_);
    const std::int64_t down = pieces(chunk_.rows.size(), task_rows_);
    const std::int64_t across = pieces(chunk_.columns.size(), task_columns_);
    pool.run((down + across) * depths, [&](std::int64_t i) {
      const std::int64_t part = i / depths;
      const Range depth = nth(i % depths, depth_, chunk_.depth);
      if (part < down) {
        const Range rows = nth(part, task_rows_, chunk_.rows);
        pack(part_of_a(p_, rows, depth), width_.rows, a_panels(rows, depth));
      } else {
        const Range columns = nth(part - down, task_columns_, chunk_.columns);
        pack(part_of_b(p_, columns, depth), width_.columns, b_panels(columns, depth));
      }
    });
    pool.run(down * across, [&](std::int64_t i) {
      multiply_tile(nth(i % down, task_rows_, chunk_.rows), nth(i / down, task_columns_, chunk_.columns));
    });
  }

 private:
  std::int64_t padded_rows() const { return pieces(chunk_.rows.size(), width_.rows) * width_.rows; }
  std::int64_t padded_columns() const { return pieces(chunk_.columns.size(), width_.columns) * width_.columns; }
  float* a_panels(Range rows, Range depth) const {
    return a_ + (depth.begin - chunk_.depth.begin) * padded_rows() + (rows.begin - chunk_.rows.begin) * depth.size();
  }
  float* b_panels(Range columns, Range depth) const {
    return b_ + (depth.begin - chunk_.depth.begin) * padded_columns() +
           (columns.begin - chunk_.columns.begin) * depth.size();
  }

  void multiply_tile(Range rows, Range columns) const {
    const DType dtype = p_.c.dtype;
    const bool wide = dtype == DType::f32, first = chunk_.depth.begin == 0, last = chunk_.depth.end == p_.k;
    void* c = at(p_.c.data, dtype, rows.begin * p_.n + columns.begin);
    const std::int64_t stride = wide ? p_.n : chunk_.columns.size();
    float* sums = wide ? static_cast<float*>(c)
                       : sums_ + (rows.begin - chunk_.rows.begin) * stride + columns.begin - chunk_.columns.begin;
    PanelProduct w{rows.size(), columns.size(), 0, nullptr, nullptr, sums, stride, sums, stride};
    if (first && p_.options.bias) {
      float* bias = scratch(columns.size());
      widen(at(p_.options.bias.data, dtype, columns.begin), dtype, columns.size(), bias);
      w.start = bias;
      w.start_stride = 0;
    } else if (first && p_.options.write == Write::overwrite) {
      w.start = nullptr;
    } else if (first && !wide) {
      for (std::int64_t i = 0; i < rows.size(); ++i)
        widen(at(c, dtype, i * p_.n), dtype, columns.size(), sums + i * stride);
    }
    for (std::int64_t i = 0; i < pieces(chunk_.depth.size(), depth_); ++i) {
      const Range depth = nth(i, depth_, chunk_.depth);
      w.depth = depth.size();
      w.a = a_panels(rows, depth);
      w.b = b_panels(columns, depth);
      multiply(w);
      w.start = sums;
      w.start_stride = stride;
    }
    if (!wide && last)
      for (std::int64_t i = 0; i < rows.size(); ++i)
        narrow(sums + i * stride, columns.size(), at(c, dtype, i * p_.n), dtype);
  }

  const Product& p_;
  Chunk chunk_;
  PanelWidths width_ = panel_widths();
  std::int64_t depth_, task_rows_, task_columns_;
  float *a_ = nullptr, *b_ = nullptr, *sums_ = nullptr;
};

Product checked(ConstView a, ConstView b, View c, const MatmulOptions& options) {
  const bool ta = options.a == Transpose::yes, tb = options.b == Transpose::yes;
  const std::int64_t m = ta ? a.shape[-1] : a.shape.rows(), k = ta ? a.shape.rows() : a.shape[-1];
  const std::int64_t n = tb ? b.shape.rows() : b.shape[-1], b_k = tb ? b.shape[-1] : b.shape.rows();
  const bool bias_fits = !options.bias || (options.bias.elements() == n && options.write == Write::overwrite);
  if (k < 1 || k != b_k || c.shape[-1] != n || c.shape.rows() != m || !bias_fits)
    throw Error("matmul: a {}{} times b {}{} does not give c {} (bias {}{})", a.shape.str(), ta ? "ᵀ" : "",
                b.shape.str(), tb ? "ᵀ" : "", c.shape.str(), options.bias ? options.bias.shape.str() : "none",
                options.write == Write::add ? ", added" : "");
  const bool same = a.dtype == b.dtype && a.dtype == c.dtype && (!options.bias || options.bias.dtype == a.dtype);
  if (!same || a.dtype == DType::i32 || a.dtype == DType::i16)
    throw Error("matmul: a is {}, b is {}, c is {}: must be the same float type", name_of(a.dtype), name_of(b.dtype),
                name_of(c.dtype));
  return {m, n, k, a, b, c, options};
}

}  // namespace

void matmul(CpuStream& stream, ConstView a, ConstView b, View c, const MatmulOptions& options) {
  const Product p = checked(a, b, c, options);
  if (p.m == 0 || p.n == 0) return;
  if (p.m <= kFewRows && options.a == Transpose::no) return matmul_few_rows(stream, p.m, p.n, p.k, a, b, c, options);
  // As much of k as fits beside all columns, then as many columns as fit beside that, then as many rows as fit.
  const PanelWidths width = panel_widths();
  const std::int64_t piece = equal_piece(p.k, kDepth), whole = pieces(p.n, width.columns) * width.columns;
  const std::int64_t fitting = std::max<std::int64_t>(1, kChunkElements / (whole * piece));
  const std::int64_t depth = std::min(pieces(p.k, piece), fitting) * piece;
  // A short k leaves room for more columns than a panel of rows, with its sums, does.
  const std::int64_t fitting_columns = kChunkElements / std::max(depth, width.rows) / width.columns * width.columns;
  const std::int64_t columns = std::min(whole, fitting_columns);
  const std::int64_t rows = kChunkElements / std::max(depth, columns) / width.rows * width.rows;
  for (std::int64_t i = 0; i < p.m; i += rows)
    for (std::int64_t j = 0; j < p.n; j += columns)
      for (std::int64_t q = 0; q < p.k; q += depth)
        ChunkProduct(p, {nth(0, rows, {i, p.m}), nth(0, columns, {j, p.n}), nth(0, depth, {q, p.k})}, piece)
            .run(stream.pool());
}

}  // namespace zeepo
