#include "zeepo/kernels/matmul.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/kernels/cpu/gemm.h"
#include "zeepo/kernels/cpu/matmul_few_rows.h"
#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/widen.h"

namespace zeepo {
namespace {

using namespace cpu;

// Tiles of the result, one task each. Small enough for many cores, large enough that packing a tile's operands is a few
// percent of its arithmetic.
constexpr std::int64_t kTileRows = 256, kTileColumns = 256;
// How much of k is widened to fp32 at once.
constexpr std::int64_t kDepth = 1024;

struct Product {
  std::int64_t m, n, k;
  ConstView a, b;
  View c;
  MatmulOptions options;
};
struct Tile {
  std::int64_t row, column, rows, columns;
};

// Equal pieces of at most `limit`, each a multiple of 16 but the last.
std::int64_t piece(std::int64_t extent, std::int64_t limit) {
  const std::int64_t pieces = (extent + limit - 1) / limit;
  return ((extent + pieces - 1) / pieces + 15) / 16 * 16;
}

void tile_f32(const Product& p, const Tile& t) {
  float* c = p.c.as<float>() + t.row * p.n + t.column;
  float beta = p.options.write == Write::add ? 1.0f : 0.0f;
  if (p.options.bias) {
    const float* bias = p.options.bias.as<float>() + t.column;
    for (std::int64_t i = 0; i < t.rows; ++i) std::copy_n(bias, t.columns, c + i * p.n);
    beta = 1;
  }
  const bool ta = p.options.a == Transpose::yes, tb = p.options.b == Transpose::yes;
  const Operand a{p.a.as<float>() + (ta ? t.row : t.row * p.k), ta ? p.m : p.k, p.options.a};
  const Operand b{p.b.as<float>() + (tb ? t.column * p.k : t.column), tb ? p.k : p.n, p.options.b};
  gemm(t.rows, t.columns, p.k, 1, a, b, beta, c, p.n);
}

// Widens pieces of the operands, sums in fp32 and rounds once.
void tile_16bit(const Product& p, const Tile& t) {
  const bool ta = p.options.a == Transpose::yes, tb = p.options.b == Transpose::yes;
  const DType dtype = p.c.dtype;
  float* a = scratch(kTileRows * kDepth + kDepth * kTileColumns + kTileRows * kTileColumns);
  float* b = a + kTileRows * kDepth;
  float* c = b + kDepth * kTileColumns;
  void* to = at(p.c.data, dtype, t.row * p.n + t.column);
  float beta = 0;
  if (p.options.write == Write::add) {
    widen_block(to, dtype, p.n, t.rows, t.columns, c);
    beta = 1;
  } else if (p.options.bias) {
    widen_block(at(p.options.bias.data, dtype, t.column), dtype, 0, t.rows, t.columns, c);
    beta = 1;
  }
  for (std::int64_t k = 0; k < p.k; k += kDepth) {
    const std::int64_t depth = std::min(kDepth, p.k - k);
    if (ta)
      widen_block(at(p.a.data, dtype, k * p.m + t.row), dtype, p.m, depth, t.rows, a);
    else
      widen_block(at(p.a.data, dtype, t.row * p.k + k), dtype, p.k, t.rows, depth, a);
    if (tb)
      widen_block(at(p.b.data, dtype, t.column * p.k + k), dtype, p.k, t.columns, depth, b);
    else
      widen_block(at(p.b.data, dtype, k * p.n + t.column), dtype, p.n, depth, t.columns, b);
    gemm(t.rows, t.columns, depth, 1, {a, ta ? t.rows : depth, p.options.a}, {b, tb ? depth : t.columns, p.options.b},
         beta, c, t.columns);
    beta = 1;
  }
  narrow_block(c, t.rows, t.columns, to, dtype, p.n);
}

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
  const std::int64_t rows = piece(p.m, kTileRows), columns = piece(p.n, kTileColumns);
  const std::int64_t down = (p.m + rows - 1) / rows, across = (p.n + columns - 1) / columns;
  stream.pool().run(down * across, [&](std::int64_t i) {
    const std::int64_t row = i % down * rows, column = i / down * columns;
    const Tile tile{row, column, std::min(rows, p.m - row), std::min(columns, p.n - column)};
    return c.dtype == DType::f32 ? tile_f32(p, tile) : tile_16bit(p, tile);
  });
}

}  // namespace zeepo
