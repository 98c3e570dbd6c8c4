#include "zeepo/kernels/matmul.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/kernels/check_matmul.h"
#include "zeepo/kernels/cpu/matmul_few_rows.h"
#include "zeepo/kernels/cpu/packed_gemm.h"
#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/widen.h"

namespace zeepo {
namespace {

using namespace cpu;

// Pieces of k, whatever m is: long ones touch the result less often, short ones keep a panel of b in the second cache.
constexpr std::int64_t kDepth = 1024;
// The product is done in chunks whose packed operands, and fp32 sums of a 16-bit result, have at most this many
// elements: 16 MiB each.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 22;
// A task's share of the result: small enough for many cores, large enough that a panel of b is used often.
constexpr std::int64_t kTaskRows = 120, kTaskColumns = 256;

// Where k is a part of a longer one, `whole_k` is that, and depths count from its start.
struct Product {
  std::int64_t m, n, k;
  ConstView a, b;
  View c;
  MatmulOptions options;
  std::int64_t a_stride, c_stride, whole_k;

  std::int64_t begin_k() const { return options.part.begin; }
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
// The i-th of the pieces that multiples of `piece` cut `all` into.
Range nth_cut(std::int64_t i, std::int64_t piece, Range all) {
  const std::int64_t first = all.begin / piece * piece;
  return {std::max(all.begin, first + i * piece), std::min(all.end, first + (i + 1) * piece)};
}
std::int64_t cuts(std::int64_t piece, Range all) { return pieces(all.end, piece) - all.begin / piece; }
// Equal pieces of at most `limit`.
std::int64_t equal_piece(std::int64_t extent, std::int64_t limit) {
  return pieces(extent, std::max<std::int64_t>(1, pieces(extent, limit)));
}

Part part_of_a(const Product& p, Range rows, Range depth) {
  const bool along_k = p.options.a == Transpose::no;
  const std::int64_t k = depth.begin - p.begin_k();
  const std::int64_t offset = along_k ? rows.begin * p.a_stride + k : k * p.a_stride + rows.begin;
  return {at(p.a.data, p.a.dtype, offset), p.a.dtype, p.a_stride, along_k, rows.size(), depth.size()};
}
Part part_of_b(const Product& p, Range columns, Range depth) {
  const bool along_k = p.options.b == Transpose::yes;
  const std::int64_t k = depth.begin - p.begin_k();
  const std::int64_t offset = along_k ? columns.begin * p.k + k : k * p.n + columns.begin;
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
    // First, so that they stay in place from one chunk of k to the next, whose panels may be shorter.
    sums_ = narrow_sums ? carve(rows * columns) : nullptr;
    a_ = carve(rows * k);
    b_ = carve(k * columns);
  }

  void run(ThreadPool& pool) {
    const std::int64_t depths = cuts(depth_, chunk_.depth);
    const std::int64_t down = pieces(chunk_.rows.size(), task_rows_);
    const std::int64_t across = pieces(chunk_.columns.size(), task_columns_);
    pool.run((down + across) * depths, [&](std::int64_t i) {
      const std::int64_t part = i / depths;
      const Range depth = nth_cut(i % depths, depth_, chunk_.depth);
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
    const bool wide = dtype == DType::f32;
    void* c = at(p_.c.data, dtype, rows.begin * p_.c_stride + columns.begin);
    const std::int64_t stride = wide ? p_.c_stride : chunk_.columns.size();
    float* sums = wide ? static_cast<float*>(c)
                       : sums_ + (rows.begin - chunk_.rows.begin) * stride + columns.begin - chunk_.columns.begin;
    float* open = p_.options.part.open.as<float>();
    if (open) open += rows.begin * p_.n + columns.begin;
    for (std::int64_t i = 0; i < cuts(depth_, chunk_.depth); ++i) {
      const Range depth = nth_cut(i, depth_, chunk_.depth);
      PanelProduct w{.rows = rows.size(), .columns = columns.size(), .depth = depth.size()};
      w.a = a_panels(rows, depth);
      w.b = b_panels(columns, depth);
      if (depth.begin % depth_ != 0) {
        w.open = open;
        w.open_stride = p_.n;
      }
      if (depth.end % depth_ != 0 && depth.end != p_.whole_k) {  // the next part goes on with it
        w.c = open;
        w.c_stride = p_.n;
      } else {
        w.c = sums;
        w.c_stride = stride;
        add_to(w, depth, c, columns);
      }
      multiply(w);
    }
    if (!wide && chunk_.depth.end == p_.whole_k)
      for (std::int64_t i = 0; i < rows.size(); ++i)
        narrow(sums + i * stride, columns.size(), at(c, dtype, i * p_.c_stride), dtype);
  }

  // What a piece of k is added to: the pieces before it; the first one to what the caller wants.
  void add_to(PanelProduct& w, Range depth, const void* c, Range columns) const {
    const ConstView& bias = p_.options.bias;
    w.start = w.c;
    w.start_stride = w.c_stride;
    if (depth.begin / depth_ > 0) return;
    if (bias) {
      float* widened = scratch(columns.size());
      widen(at(bias.data, bias.dtype, columns.begin), bias.dtype, columns.size(), widened);
      w.start = widened;
      w.start_stride = 0;
    } else if (p_.options.write == Write::overwrite) {
      w.start = nullptr;
    } else if (p_.c.dtype != DType::f32) {
      for (std::int64_t i = 0; i < w.rows; ++i)
        widen(at(c, p_.c.dtype, i * p_.c_stride), p_.c.dtype, w.columns, w.c + i * w.c_stride);
    }
  }

  const Product& p_;
  Chunk chunk_;
  PanelWidths width_ = panel_widths();
  std::int64_t depth_, task_rows_, task_columns_;
  float *a_ = nullptr, *b_ = nullptr, *sums_ = nullptr;
};

Product checked(ConstView a, ConstView b, View c, const MatmulOptions& options) {
  const auto [m, n, k] = matmul_sizes(a, b, c, options);
  const std::int64_t a_width = a.shape[-1];
  const std::int64_t a_stride = options.a_stride ? options.a_stride : a_width;
  const std::int64_t c_stride = options.c_stride ? options.c_stride : n;
  if (a_stride < a_width || c_stride < n)
    throw Error("matmul: rows {} and {} elements apart are shorter than those of a {} and c {}", a_stride, c_stride,
                a.shape.str(), c.shape.str());
  const bool same = a.dtype == b.dtype && (a.dtype == c.dtype || c.dtype == DType::f32) &&
                    (!options.bias || options.bias.dtype == a.dtype);
  if (!same || !is_float(a.dtype))
    throw Error("matmul: a is {}, b is {}, c is {}: must be the same float type, or c fp32", name_of(a.dtype),
                name_of(b.dtype), name_of(c.dtype));
  const auto& part = options.part;
  if (part.whole == 0) return {m, n, k, a, b, c, options, a_stride, c_stride, k};
  const bool part_fits = part.begin >= 0 && part.begin + k <= part.whole && c.dtype == DType::f32 &&
                         part.open.dtype == DType::f32 && part.open.elements() == m * n;
  if (!part_fits)
    throw Error("matmul: part [{}, {}) of k {} into {} c {} with {} open {}", part.begin, part.begin + k, part.whole,
                name_of(c.dtype), c.shape.str(), name_of(part.open.dtype), part.open.shape.str());
  return {m, n, k, a, b, c, options, a_stride, c_stride, part.whole};
}

}  // namespace

void matmul(CpuStream& stream, ConstView a, ConstView b, View c, const MatmulOptions& options) {
  const Product p = checked(a, b, c, options);
  if (p.m == 0 || p.n == 0) return;
  const std::int64_t piece = std::max<std::int64_t>(1, equal_piece(p.whole_k, kDepth));
  if (p.m <= kFewRows && options.a == Transpose::no)
    return matmul_few_rows(stream, p.m, p.n, p.k, piece, a, b, c, options);
  // As much of k as fits beside all columns, then as many columns as fit beside that, then as many rows as fit.
  const PanelWidths width = panel_widths();
  const std::int64_t whole = pieces(p.n, width.columns) * width.columns;
  const std::int64_t fitting = std::max<std::int64_t>(1, kChunkElements / (whole * piece));
  const Range all{p.begin_k(), p.begin_k() + p.k};
  const std::int64_t depth = std::min(cuts(piece, all), fitting) * piece;
  // A short k leaves room for more columns than a panel of rows, with its sums, does.
  const std::int64_t fitting_columns = kChunkElements / std::max(depth, width.rows) / width.columns * width.columns;
  const std::int64_t columns = std::min(whole, fitting_columns);
  const std::int64_t rows = kChunkElements / std::max(depth, columns) / width.rows * width.rows;
  for (std::int64_t i = 0; i < p.m; i += rows)
    for (std::int64_t j = 0; j < p.n; j += columns)
      for (std::int64_t q = all.begin / piece * piece; q < all.end; q += depth)
        ChunkProduct(
            p,
            {nth(0, rows, {i, p.m}), nth(0, columns, {j, p.n}), {std::max(q, all.begin), std::min(q + depth, all.end)}},
            piece)
            .run(stream.pool());
}

}  // namespace zeepo
