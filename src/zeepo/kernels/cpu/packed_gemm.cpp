#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/packed_gemm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <algorithm>
#include <array>
#include <utility>

#include "zeepo/kernels/cpu/load-inl.h"
#include "zeepo/kernels/cpu/packed_gemm.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

// As many sums as there are registers for: 24 of 32 with AVX-512, 12 of 16 with AVX2.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 12, kVectors = 2;
#else
constexpr int kRows = 6, kVectors = 2;
#endif

HWY_INLINE std::int64_t tile_columns() {
  return kVectors * static_cast<std::int64_t>(hn::Lanes(hn::ScalableTag<float>()));
}

PanelWidths widths() { return {kRows, tile_columns()}; }

#if HWY_TARGET != HWY_SCALAR
// A 4 × 4 block, turned over.
template <class T>
HWY_INLINE void turn_block(const T* from, std::int64_t stride, std::int64_t width, float* to) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> d64;
  const auto x0 = load(d, from), x1 = load(d, from + stride);
  const auto x2 = load(d, from + 2 * stride), x3 = load(d, from + 3 * stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, x0, x1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, x2, x3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, x0, x1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, x2, x3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, to + width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, to + 2 * width);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, to + 3 * width);
}
#endif

// to[p·width + r] = from[r·stride + p], in pieces of k that keep both sides in the first cache.
template <class T>
HWY_INLINE void pack_across(const T* from, std::int64_t stride, std::int64_t rows, std::int64_t depth,
                            std::int64_t width, float* to) {
  constexpr std::int64_t kPiece = 32;
  for (std::int64_t begin = 0; begin < depth; begin += kPiece) {
    const std::int64_t end = std::min(depth, begin + kPiece);
    std::int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR
    for (; r + 4 <= rows; r += 4) {
      std::int64_t p = begin;
      for (; p + 4 <= end; p += 4) turn_block(from + r * stride + p, stride, width, to + p * width + r);
      for (; p < end; ++p)
        for (int i = 0; i < 4; ++i) to[p * width + r + i] = to_float(from[(r + i) * stride + p]);
    }
#endif
    for (; r < rows; ++r)
      for (std::int64_t p = begin; p < end; ++p) to[p * width + r] = to_float(from[r * stride + p]);
  }
}

template <class T>
HWY_INLINE void copy_row(const T* from, std::int64_t n, float* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, load(d, from + i), to + i);
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d4;
  for (; i + 4 <= n; i += 4) store(d4, load(d4, from + i), to + i);
#endif
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

template <class T>
void pack_panels(const Part& part, std::int64_t width, float* to) {
  const T* from = static_cast<const T*>(part.data);
  const std::int64_t whole = part.extent / width * width, rest = part.extent - whole;
  if (rest > 0)
    for (std::int64_t p = 0; p < part.depth; ++p)
      std::fill_n(to + whole * part.depth + p * width + rest, width - rest, 0.0f);
  if (part.contiguous_k) {
    for (std::int64_t begin = 0; begin < part.extent; begin += width)
      pack_across(from + begin * part.stride, part.stride, std::min(width, part.extent - begin), part.depth, width,
                  to + begin * part.depth);
    return;
  }
  // Stored rows are far apart: all that is wanted of one is read before the next.
  for (std::int64_t p = 0; p < part.depth; ++p)
    for (std::int64_t begin = 0; begin < part.extent; begin += width)
      copy_row(from + p * part.stride + begin, std::min(width, part.extent - begin),
               to + begin * part.depth + p * width);
}

void pack_any(const Part& part, std::int64_t width, float* to) {
  switch (part.dtype) {
    case DType::bf16: return pack_panels<bf16>(part, width, to);
    case DType::f16: return pack_panels<f16>(part, width, to);
    default: return pack_panels<float>(part, width, to);
  }
}

// Calls f(0) .. f(N-1), unrolled by the language: an array that f indexes stays in registers.
template <int N, class F>
HWY_INLINE void unrolled(F f) {
  [&]<int... I>(std::integer_sequence<int, I...>) HWY_ATTR { (f(std::integral_constant<int, I>()), ...); }
  (std::make_integer_sequence<int, N>());
}

// Elements of a cache line.
constexpr std::int64_t kLine = 16;

// One tile: Rows × (kVectors · lanes) sums in registers. `columns` may be fewer at the right edge.
template <int Rows>
void tile(const PanelProduct& w, const float* a, const float* b, std::int64_t row, std::int64_t column,
          std::int64_t columns) {
  const hn::ScalableTag<float> d;
  using Vector = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t width = tile_columns();
  const float* start = w.start ? w.start + row * w.start_stride + column : nullptr;
  float* c = w.c + row * w.c_stride + column;
  // Stores to lines that are far away would hold up the next tile.
  for (int r = 0; r < Rows; ++r)
    for (std::int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(c + r * w.c_stride + j, 1);
  Vector sums[Rows][kVectors];
  HWY_ALIGN float rest[kVectors * hn::MaxLanes(d)];
  unrolled<Rows>([&](auto r) HWY_ATTR {
    const float* open = w.open ? w.open + (row + r) * w.open_stride + column : nullptr;
    if (open && columns < width) {
      std::fill(std::copy_n(open, columns, rest), rest + width, 0.0f);
      open = rest;
    }
    unrolled<kVectors>([&](auto v) HWY_ATTR { sums[r][v] = open ? hn::LoadU(d, open + v * lanes) : hn::Zero(d); });
  });
  for (std::int64_t p = 0; p < w.depth; ++p, a += kRows, b += width) {
    Vector y[kVectors];
    unrolled<kVectors>([&](auto v) HWY_ATTR { y[v] = hn::LoadU(d, b + v * lanes); });
    unrolled<Rows>([&](auto r) HWY_ATTR {
      const auto x = hn::Set(d, a[r]);
      unrolled<kVectors>([&](auto v) HWY_ATTR { sums[r][v] = fused(d, x, y[v], sums[r][v]); });
    });
  }
  if (columns == width) {
    unrolled<Rows>([&](auto r) HWY_ATTR {
      unrolled<kVectors>([&](auto v) HWY_ATTR {
        const auto sum = start ? hn::Add(sums[r][v], hn::LoadU(d, start + r * w.start_stride + v * lanes)) : sums[r][v];
        hn::StoreU(sum, d, c + r * w.c_stride + v * lanes);
      });
    });
    return;
  }
  unrolled<Rows>([&](auto r) HWY_ATTR {
    unrolled<kVectors>([&](auto v) HWY_ATTR { hn::StoreU(sums[r][v], d, rest + v * lanes); });
    for (std::int64_t j = 0; j < columns; ++j)
      c[r * w.c_stride + j] = start ? rest[j] + start[r * w.start_stride + j] : rest[j];
  });
}

using Tile = void (*)(const PanelProduct&, const float*, const float*, std::int64_t, std::int64_t, std::int64_t);
template <int... Rows>
constexpr std::array<Tile, sizeof...(Rows)> tiles_of(std::integer_sequence<int, Rows...>) {
  return {&tile<Rows + 1>...};
}
constexpr auto kTiles = tiles_of(std::make_integer_sequence<int, kRows>());

// A panel of b stays near while all panels of a pass by.
void multiply_panels(const PanelProduct& w) {
  const std::int64_t width = tile_columns();
  for (std::int64_t column = 0; column < w.columns; column += width) {
    const float* b = w.b + column * w.depth;
    const std::int64_t columns = std::min(width, w.columns - column);
    for (std::int64_t row = 0; row < w.rows; row += kRows) {
      const auto rows = std::min<std::int64_t>(kRows, w.rows - row);
      kTiles[static_cast<std::size_t>(rows - 1)](w, w.a + row * w.depth, b, row, column, columns);
    }
  }
}

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo::cpu {
namespace {
HWY_EXPORT(widths);
HWY_EXPORT(pack_any);
HWY_EXPORT(multiply_panels);
}  // namespace

PanelWidths panel_widths() { return HWY_DYNAMIC_DISPATCH(widths)(); }
void pack(const Part& part, std::int64_t width, float* to) { HWY_DYNAMIC_DISPATCH(pack_any)(part, width, to); }
void multiply(const PanelProduct& w) { HWY_DYNAMIC_DISPATCH(multiply_panels)(w); }

}  // namespace zeepo::cpu
#endif
