#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/few_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <algorithm>
#include <array>
#include <utility>

#include "zeepo/kernels/cpu/few_rows.h"
#include "zeepo/kernels/cpu/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

template <class D>
HWY_INLINE hn::Vec<D> first_of(D d, const FewRows& w, std::int64_t row, std::int64_t column) {
  return w.open ? hn::LoadU(d, w.sums + row * w.sums_stride + column) : hn::Zero(d);
}

// b is stored (k, n): Vectors × lanes columns stay in registers while the rows of b pass by.
template <int Rows, int Vectors, class T, class D>
HWY_INLINE void weighted_rows(D d, const FewRows& w, std::int64_t column) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* b = static_cast<const T*>(w.b) + column;
  hn::Vec<D> sums[Rows][Vectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) sums[r][v] = first_of(d, w, r, column + v * lanes);
  for (std::int64_t p = 0; p < w.depth; ++p, b += w.b_stride) {
    hn::Vec<D> y[Vectors];
    for (int v = 0; v < Vectors; ++v) y[v] = load(d, b + v * lanes);
    for (int r = 0; r < Rows; ++r) {
      const auto x = hn::Set(d, w.a[r * w.a_stride + p]);
      for (int v = 0; v < Vectors; ++v) sums[r][v] = fused(d, x, y[v], sums[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v) hn::StoreU(sums[r][v], d, w.sums + r * w.sums_stride + column + v * lanes);
}

// Narrower and narrower vectors towards the end: the width changes no bit of a lane.
template <int Rows, class T>
void columns_of_plain(const FewRows& w) {
  constexpr int kVectors = Rows <= 4 ? 4 : 2;
  std::int64_t column = 0;
  const auto whole = [&]<int Vectors, class D>(D d, std::integral_constant<int, Vectors>) HWY_ATTR {
    const auto width = Vectors * static_cast<std::int64_t>(hn::Lanes(d));
    for (; column + width <= w.columns; column += width) weighted_rows<Rows, Vectors, T>(d, w, column);
  };
  whole(hn::ScalableTag<float>(), std::integral_constant<int, kVectors>());
  whole(hn::ScalableTag<float>(), std::integral_constant<int, 1>());
#if HWY_TARGET != HWY_SCALAR
  whole(hn::CappedTag<float, 8>(), std::integral_constant<int, 1>());
  whole(hn::FixedTag<float, 4>(), std::integral_constant<int, 1>());
#endif
  whole(hn::CappedTag<float, 1>(), std::integral_constant<int, 1>());
}

#if HWY_TARGET != HWY_SCALAR
using Tag = hn::ScalableTag<float>;
using WordTag = hn::RebindToUnsigned<Tag>;
using Words = hn::Vec<WordTag>;
using Vector = hn::Vec<Tag>;

// Elements in a 32-bit word of a stored row.
template <class T>
constexpr int kInWord = 4 / sizeof(T);
// How far ahead of the sums rows are fetched: there are more of them than the processor follows by itself.
template <class T>
constexpr std::int64_t kAhead = 512 / sizeof(T);

// Where the rows of b that are a vector's lanes begin. Past the last column it is that column again.
template <class T>
struct Whole {
  const T* b;
  std::int64_t stride;
  const T* operator()(std::int64_t lane) const { return b + lane * stride; }
};
template <class T>
struct Rest {
  const T* b;
  std::int64_t stride, columns;
  const T* operator()(std::int64_t lane) const { return b + std::min(lane, columns - 1) * stride; }
};

// Four words, from element p on, of rows `row`, `row` + 4, ...: one 128-bit block each.
template <class D, class Rows>
HWY_INLINE hn::Vec<D> blocks(D d, const Rows& rows, std::int64_t row, std::int64_t p) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(rows(row) + p));
  } else {
    const hn::Half<D> half;
    constexpr auto kHalf = static_cast<std::int64_t>(hn::MaxLanes(hn::Half<D>()));
    return hn::Combine(d, blocks(half, rows, row + kHalf, p), blocks(half, rows, row, p));
  }
}

// Turns over each 4 × 4 block of words: block b of x[i] becomes words 4b .. of rows 0 .. 3.
HWY_INLINE void turn_blocks(Words (&x)[4]) {
  const WordTag d;
  const hn::RepartitionToWide<WordTag> d64;
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, x[0], x[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, x[2], x[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, x[0], x[1]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, x[2], x[3]));
  x[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  x[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  x[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  x[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

constexpr int kLanes = static_cast<int>(hn::MaxLanes(Tag()));

// words[i]: word i, counted from element p, of every row. Each row is read in one go: rows whose distance is a power of
// two share the places of the first cache, and would push each other out.
template <class Rows>
HWY_INLINE void turned(const Rows& rows, std::int64_t p, Words (&words)[kLanes]) {
  const WordTag d;
  Words x[kLanes / 4][4];
  for (int g = 0; g < kLanes / 4; ++g) {
    for (int i = 0; i < 4; ++i) x[g][i] = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(rows(4 * g + i) + p));
    turn_blocks(x[g]);
  }
  for (int i = 0; i < 4; ++i) {
    if constexpr (kLanes == 4) {
      words[i] = x[0][i];
    } else if constexpr (kLanes == 8) {
      words[i] = hn::ConcatLowerLower(d, x[1][i], x[0][i]);
      words[4 + i] = hn::ConcatUpperUpper(d, x[1][i], x[0][i]);
    } else {
      const auto even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(x[1][i]), x[0][i]);
      const auto even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(x[3][i]), x[2][i]);
      const auto odd01 = hn::OddEvenBlocks(x[1][i], hn::SwapAdjacentBlocks(x[0][i]));
      const auto odd23 = hn::OddEvenBlocks(x[3][i], hn::SwapAdjacentBlocks(x[2][i]));
      words[i] = hn::ConcatLowerLower(d, even23, even01);
      words[4 + i] = hn::ConcatLowerLower(d, odd23, odd01);
      words[8 + i] = hn::ConcatUpperUpper(d, even23, even01);
      words[12 + i] = hn::ConcatUpperUpper(d, odd23, odd01);
    }
  }
}

// The first 4 of them.
template <class Rows>
HWY_INLINE void turned(const Rows& rows, std::int64_t p, Words (&words)[4]) requires(kLanes > 4) {
  for (int i = 0; i < 4; ++i) words[i] = blocks(WordTag(), rows, i, p);
  turn_blocks(words);
}

// Element i of each word, widened.
HWY_INLINE Vector element(Words words, float, int) { return hn::BitCast(Tag(), words); }
HWY_INLINE Vector element(Words words, bf16, int i) {
  return hn::BitCast(Tag(), i == 0 ? hn::ShiftLeft<16>(words) : hn::And(words, hn::Set(WordTag(), 0xffff0000u)));
}
HWY_INLINE Vector element(Words words, f16, int i) {
  const hn::Rebind<std::uint16_t, Tag> d16;
  const hn::Rebind<hwy::float16_t, Tag> halves;
  const auto bits = hn::TruncateTo(d16, i == 0 ? words : hn::ShiftRight<16>(words));
  return hn::PromoteTo(Tag(), hn::BitCast(halves, bits));
}

// b is stored (n, k): the chains of one vector of columns, whose rows are turned over some words at a time.
template <int WordsAtOnce, int Rows, class T, class Lanes>
HWY_INLINE void extend_chains(const FewRows& w, const Lanes& rows, std::int64_t& p, Vector (&sums)[Rows]) {
  const Tag d;
  constexpr std::int64_t kStep = WordsAtOnce * kInWord<T>;
  for (; p + kStep <= w.depth; p += kStep) {
    if constexpr (WordsAtOnce == kLanes)
      for (int lane = 0; lane < kLanes; ++lane) __builtin_prefetch(rows(lane) + p + kAhead<T>, 0, 2);
    Words words[WordsAtOnce];
    turned(rows, p, words);
    for (int i = 0; i < WordsAtOnce; ++i)
      for (int e = 0; e < kInWord<T>; ++e) {
        const auto y = element(words[i], T{}, e);
        const float* a = w.a + p + i * kInWord<T> + e;
        for (int r = 0; r < Rows; ++r) sums[r] = fused(d, hn::Set(d, a[r * w.a_stride]), y, sums[r]);
      }
  }
}

template <int Rows, class T, class Lanes>
HWY_INLINE void chains(const FewRows& w, const Lanes& rows, Vector (&sums)[Rows]) {
  const Tag d;
  std::int64_t p = 0;
  extend_chains<kLanes, Rows, T>(w, rows, p, sums);
  if constexpr (kLanes > 4) extend_chains<4, Rows, T>(w, rows, p, sums);
  for (; p < w.depth; ++p) {
    HWY_ALIGN float y[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) y[lane] = to_float(rows(lane)[p]);
    for (int r = 0; r < Rows; ++r) sums[r] = fused(d, hn::Set(d, w.a[r * w.a_stride + p]), hn::Load(d, y), sums[r]);
  }
}

template <int Rows, class T>
void columns_of_turned(const FewRows& w) {
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* b = static_cast<const T*>(w.b);
  std::int64_t column = 0;
  for (; column + lanes <= w.columns; column += lanes) {
    Vector sums[Rows];
    for (int r = 0; r < Rows; ++r) sums[r] = first_of(d, w, r, column);
    chains<Rows, T>(w, Whole<T>{b + column * w.b_stride, w.b_stride}, sums);
    for (int r = 0; r < Rows; ++r) hn::StoreU(sums[r], d, w.sums + r * w.sums_stride + column);
  }
  if (column == w.columns) return;
  const std::int64_t rest = w.columns - column;
  Vector sums[Rows];
  for (int r = 0; r < Rows; ++r)
    sums[r] = w.open ? load_part(d, w.sums + r * w.sums_stride + column, rest, 0) : hn::Zero(d);
  chains<Rows, T>(w, Rest<T>{b + column * w.b_stride, w.b_stride, rest}, sums);
  for (int r = 0; r < Rows; ++r) store_part(d, sums[r], rest, w.sums + r * w.sums_stride + column);
}
#else
template <int Rows, class T>
void columns_of_turned(const FewRows& w) {
  for (std::int64_t j = 0; j < w.columns; ++j)
    for (int r = 0; r < Rows; ++r) {
      float* sum = w.sums + r * w.sums_stride + j;
      float chain = w.open ? *sum : 0;
      for (std::int64_t p = 0; p < w.depth; ++p)
        chain = std::fma(w.a[r * w.a_stride + p], to_float(static_cast<const T*>(w.b)[j * w.b_stride + p]), chain);
      *sum = chain;
    }
}
#endif

template <int Rows>
void multiply_rows(const FewRows& w) {
  const auto of = [&]<class T>(T) HWY_ATTR {
    return w.contiguous_k ? columns_of_turned<Rows, T>(w) : columns_of_plain<Rows, T>(w);
  };
  return w.dtype == DType::f32 ? of(float{}) : w.dtype == DType::bf16 ? of(bf16{}) : of(f16{});
}

using Multiply = void (*)(const FewRows&);
template <int... Rows>
constexpr std::array<Multiply, sizeof...(Rows)> products_of(std::integer_sequence<int, Rows...>) {
  return {&multiply_rows<Rows + 1>...};
}
constexpr auto kProducts = products_of(std::make_integer_sequence<int, kFewRows>());

void multiply_few_rows(const FewRows& w) { kProducts[static_cast<std::size_t>(w.rows - 1)](w); }

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo::cpu {
namespace {
HWY_EXPORT(multiply_few_rows);
}  // namespace

void multiply(const FewRows& w) { HWY_DYNAMIC_DISPATCH(multiply_few_rows)(w); }

}  // namespace zeepo::cpu
#endif
