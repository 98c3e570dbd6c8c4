#include <cstring>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/partial_sums.h"
#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/rms_norm_heads.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/rms_norm_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// Head h of row r, rows counted through the batch.
template <class T, class Void>
auto* head(const BasicHeads<Void>& x, std::int64_t r, std::int64_t h) {
  return x.template as<T>() + r / x.rows * x.batch_stride + r % x.rows * x.row_stride + h * x.head_dim;
}

void rms_norm_head_rows(const ConstHeads& x, ConstView weight, float eps, const Heads& y, View rstd, std::int64_t begin,
                        std::int64_t end) {
  with_float_type(y.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t h = 0; h < y.heads; ++h) {
        const float s = rms_norm_row(head<T>(x, r, h), weight.as<T>(), eps, y.head_dim, head<T>(y, r, h));
        if (rstd) rstd.as<float>()[r * y.heads + h] = s;
      }
  });
}

void rms_norm_head_rows_backward(const ConstHeads& dy, const ConstHeads& x, ConstView weight, ConstView rstd,
                                 const Heads& dx, float* dweight, std::int64_t begin, std::int64_t end) {
  with_float_type(dx.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t h = 0; h < dx.heads; ++h)
        rms_norm_row_backward(head<T>(dy, r, h), head<T>(x, r, h), weight.as<T>(), rstd.as<float>()[r * dx.heads + h],
                              dx.head_dim, head<T>(dx, r, h), Write::overwrite, dweight);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(rms_norm_head_rows);
HWY_EXPORT(rms_norm_head_rows_backward);

}  // namespace

void rms_norm_heads(CpuStream& stream, ConstHeads x, ConstView weight, float eps, Heads y, View rstd) {
  const auto rows = y.batch * y.rows;
  stream.pool().for_range(rows, rows_per_task(y.heads * y.head_dim), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rms_norm_head_rows)(x, weight, eps, y, rstd, begin, end);
  });
}

void rms_norm_heads_backward(CpuStream& stream, ConstHeads dy, ConstHeads x, ConstView weight, ConstView rstd, Heads dx,
                             View dweight, Write write_dweight) {
  const auto rows = dx.batch * dx.rows, n = dx.head_dim;
  const auto cut = row_blocks(rows);
  float* partials = cpu::scratch<cpu::Scratch::call>(cut.blocks * n);  // (blocks, n)
  stream.pool().for_range(rows, cut.rows_per_block, [&](std::int64_t begin, std::int64_t end) {
    float* partial = partials + begin / cut.rows_per_block * n;
    std::memset(partial, 0, static_cast<std::size_t>(n) * sizeof(float));
    HWY_DYNAMIC_DISPATCH(rms_norm_head_rows_backward)(dy, x, weight, rstd, dx, partial, begin, end);
  });
  if (dweight) add_partial_sums(stream, partials, cut.blocks, n, dweight, write_dweight);
}

}  // namespace zeepo
#endif
