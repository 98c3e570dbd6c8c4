#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/matmul_few_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <algorithm>

#include "zeepo/kernels/cpu/load-inl.h"
#include "zeepo/kernels/cpu/matmul_few_rows.h"
#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/widen.h"

#ifndef ZEEPO_KERNELS_CPU_MATMUL_FEW_ROWS_ONCE
#define ZEEPO_KERNELS_CPU_MATMUL_FEW_ROWS_ONCE
namespace zeepo::cpu {

// The columns [begin, end) of sums = a b, in fp32.   sums: (m, end − begin)
struct FewRows {
  const float* a;
  const void* b;
  std::int64_t m, n, k, begin, end;
  float* sums;
};

}  // namespace zeepo::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

// b is stored (n, k): dot products of its rows with those of a, `Columns` rows of b at a time.
template <int Rows, int Columns, class T>
HWY_INLINE void dot_products(const FewRows& w, std::int64_t j) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* b = static_cast<const T*>(w.b) + j * w.k;
  hn::Vec<decltype(d)> sums[Rows][Columns];
  for (auto& row : sums)
    for (auto& sum : row) sum = hn::Zero(d);
  std::int64_t p = 0;
  for (; p + lanes <= w.k; p += lanes) {
    hn::Vec<decltype(d)> x[Columns];
    for (int c = 0; c < Columns; ++c) x[c] = load(d, b + c * w.k + p);
    for (int r = 0; r < Rows; ++r) {
      const auto y = hn::LoadU(d, w.a + r * w.k + p);
      for (int c = 0; c < Columns; ++c) sums[r][c] = hn::MulAdd(x[c], y, sums[r][c]);
    }
  }
  for (int r = 0; r < Rows; ++r) {
    for (int c = 0; c < Columns; ++c) {
      float sum = hn::GetLane(hn::SumOfLanes(d, sums[r][c]));
      for (std::int64_t q = p; q < w.k; ++q) sum += to_float(b[c * w.k + q]) * w.a[r * w.k + q];
      w.sums[r * (w.end - w.begin) + j - w.begin + c] = sum;
    }
  }
}

template <int Rows, class T>
void columns_of_transposed(const FewRows& w) {
  // Several chains of sums hide the latency of an fma; more rows of b at once also keep more reads in flight.
  constexpr int kColumns = Rows <= 2 ? 4 : Rows <= 4 ? 2 : 1;
  std::int64_t j = w.begin;
  for (; j + kColumns <= w.end; j += kColumns) dot_products<Rows, kColumns, T>(w, j);
  for (; j < w.end; ++j) dot_products<Rows, 1, T>(w, j);
}

// b is stored (k, n): Vectors × lanes columns stay in registers while the rows of b pass by.
template <int Rows, int Vectors, class T>
HWY_INLINE void weighted_rows(const FewRows& w, std::int64_t j) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const T* b = static_cast<const T*>(w.b) + j;
  hn::Vec<decltype(d)> sums[Rows][Vectors];
  for (auto& row : sums)
    for (auto& sum : row) sum = hn::Zero(d);
  for (std::int64_t p = 0; p < w.k; ++p) {
    hn::Vec<decltype(d)> x[Vectors];
    for (int v = 0; v < Vectors; ++v) x[v] = load(d, b + p * w.n + v * lanes);
    for (int r = 0; r < Rows; ++r) {
      const auto y = hn::Set(d, w.a[r * w.k + p]);
      for (int v = 0; v < Vectors; ++v) sums[r][v] = hn::MulAdd(x[v], y, sums[r][v]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vectors; ++v)
      hn::StoreU(sums[r][v], d, w.sums + r * (w.end - w.begin) + j - w.begin + v * lanes);
}

template <int Rows, class T>
void columns_of_plain(const FewRows& w) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr int kVectors = Rows <= 4 ? 4 : 2;
  std::int64_t j = w.begin;
  for (; j + kVectors * lanes <= w.end; j += kVectors * lanes) weighted_rows<Rows, kVectors, T>(w, j);
  for (; j + lanes <= w.end; j += lanes) weighted_rows<Rows, 1, T>(w, j);
  for (; j < w.end; ++j) {
    for (int r = 0; r < Rows; ++r) {
      float sum = 0;
      for (std::int64_t p = 0; p < w.k; ++p)
        sum += w.a[r * w.k + p] * to_float(static_cast<const T*>(w.b)[p * w.n + j]);
      w.sums[r * (w.end - w.begin) + j - w.begin] = sum;
    }
  }
}

template <int Rows, class T>
void columns(const FewRows& w, Transpose b) {
  return b == Transpose::yes ? columns_of_transposed<Rows, T>(w) : columns_of_plain<Rows, T>(w);
}

template <class T>
void columns(const FewRows& w, Transpose b) {
  switch (w.m) {
    case 1: return columns<1, T>(w, b);
    case 2: return columns<2, T>(w, b);
    case 3: return columns<3, T>(w, b);
    case 4: return columns<4, T>(w, b);
    case 5: return columns<5, T>(w, b);
    case 6: return columns<6, T>(w, b);
    case 7: return columns<7, T>(w, b);
    default: return columns<8, T>(w, b);
  }
}

void few_rows(const FewRows& w, DType dtype, Transpose b) {
  switch (dtype) {
    case DType::bf16: return columns<bf16>(w, b);
    case DType::f16: return columns<f16>(w, b);
    default: return columns<float>(w, b);
  }
}

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo::cpu {

HWY_EXPORT(few_rows);

// Adds the bias or what c holds already, and rounds once.
static void finish_columns(const FewRows& w, View c, const MatmulOptions& options) {
  const std::int64_t columns = w.end - w.begin;
  float* other = w.sums + line_aligned(w.m * columns);
  for (std::int64_t r = 0; r < w.m; ++r) {
    float* sums = w.sums + r * columns;
    void* to = at(c.data, c.dtype, r * (options.c_stride ? options.c_stride : w.n) + w.begin);
    const bool add = options.write == Write::add || options.part.begin > 0;
    if (add || options.bias) {
      const DType dtype = add ? c.dtype : options.bias.dtype;
      widen(add ? to : at(options.bias.data, dtype, w.begin), dtype, columns, other);
      for (std::int64_t j = 0; j < columns; ++j) sums[j] += other[j];
    }
    narrow(sums, columns, to, c.dtype);
  }
}

void matmul_few_rows(CpuStream& stream, std::int64_t m, std::int64_t n, std::int64_t k, ConstView a, ConstView b,
                     View c, const MatmulOptions& options) {
  const float* rows = a.as<float>();
  const std::int64_t stride = options.a_stride ? options.a_stride : k;
  if (a.dtype != DType::f32 || stride != k) {
    float* packed = scratch<Scratch::call>(m * k);
    for (std::int64_t r = 0; r < m; ++r) widen(at(a.data, a.dtype, r * stride), a.dtype, k, packed + r * k);
    rows = packed;
  }
  constexpr std::int64_t kColumns = 64;
  stream.pool().for_range(n, kColumns, [&](std::int64_t begin, std::int64_t end) {
    float* sums = scratch(line_aligned(m * kColumns) + kColumns);
    const FewRows work{rows, b.data, m, n, k, begin, end, sums};
    HWY_DYNAMIC_DISPATCH(few_rows)(work, b.dtype, options.b);
    finish_columns(work, c, options);
  });
}

}  // namespace zeepo::cpu
#endif
