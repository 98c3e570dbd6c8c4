#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/sum_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <algorithm>

#include "zeepo/kernels/cpu/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

// sums[j] += x[0][j] + x[1][j] + ...
template <class T>
void add_rows(const T* x, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* sums) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < rows; ++i, x += stride) {
    std::int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) hn::StoreU(hn::Add(hn::LoadU(d, sums + j), load(d, x + j)), d, sums + j);
    for (; j < columns; ++j) sums[j] += to_float(x[j]);
  }
}

void add_any_rows(const void* x, DType dtype, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                  float* sums) {
  switch (dtype) {
    case DType::bf16: return add_rows(static_cast<const bf16*>(x), stride, rows, columns, sums);
    case DType::f16: return add_rows(static_cast<const f16*>(x), stride, rows, columns, sums);
    default: return add_rows(static_cast<const float*>(x), stride, rows, columns, sums);
  }
}

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "zeepo/base/error.h"
#include "zeepo/kernels/cpu/widen.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace cpu {
namespace {
HWY_EXPORT(add_any_rows);

void add_rows(const void* x, DType dtype, std::int64_t stride, std::int64_t rows, std::int64_t columns, float* sums) {
  HWY_DYNAMIC_DISPATCH(add_any_rows)(x, dtype, stride, rows, columns, sums);
}
}  // namespace
}  // namespace cpu

void sum_rows(CpuStream& stream, ConstView x, View sums, Write write) {
  const std::int64_t n = x.shape[-1], rows = x.shape.rows();
  if (sums.elements() != n || (sums.dtype != x.dtype && sums.dtype != DType::f32))
    throw Error("sum_rows: rows of {} {} do not fit sums of {} {}", name_of(x.dtype), x.shape.str(),
                name_of(sums.dtype), sums.shape.str());
  // Sums of few rows, then a sum of those: the rounding error grows with the number of blocks, not of rows.
  constexpr std::int64_t kColumns = 256, kRows = 64;
  stream.pool().for_range(n, kColumns, [&](std::int64_t begin, std::int64_t end) {
    float total[kColumns] = {}, block[kColumns];
    const std::int64_t columns = end - begin;
    for (std::int64_t i = 0; i < rows; i += kRows) {
      std::fill_n(block, columns, 0.0f);
      cpu::add_rows(cpu::at(x.data, x.dtype, i * n + begin), x.dtype, n, std::min(kRows, rows - i), columns, block);
      for (std::int64_t j = 0; j < columns; ++j) total[j] += block[j];
    }
    void* to = cpu::at(sums.data, sums.dtype, begin);
    if (write == Write::add) {
      cpu::widen(to, sums.dtype, columns, block);
      for (std::int64_t j = 0; j < columns; ++j) total[j] += block[j];
    }
    cpu::narrow(total, columns, to, sums.dtype);
  });
}

}  // namespace zeepo
#endif
