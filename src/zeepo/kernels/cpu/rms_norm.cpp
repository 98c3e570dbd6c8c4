#include <cstring>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/partial_sums.h"
#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/rms_norm_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

void rms_norm_rows(const RmsNormForward& op, std::int64_t begin, std::int64_t end) {
  with_float_type(op.y.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto n = op.y.shape[-1];
    for (std::int64_t row = begin; row < end; ++row) {
      const auto* x = op.x.as<T>() + row * n;
      if (op.delta) {
        const auto* delta = op.delta.as<T>() + row * n;
        auto* sum = op.sum.as<T>() + row * n;
        sweep(n, [&](std::int64_t i, auto count)
                     HWY_ATTR { store(hn::Add(load(x + i, count), load(delta + i, count)), sum + i, count); });
        x = sum;
      }
      const float rstd = rms_norm_row(x, op.weight.as<T>(), op.eps, n, op.y.as<T>() + row * n);
      if (op.rstd) op.rstd.as<float>()[row] = rstd;
    }
  });
}

void rms_norm_backward_rows(const RmsNormBackward& op, std::int64_t begin, std::int64_t end, float* dweight) {
  with_float_type(op.dx.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto n = op.dx.shape[-1];
    for (std::int64_t row = begin; row < end; ++row)
      rms_norm_row_backward(op.dy.as<T>() + row * n, op.x.as<T>() + row * n, op.weight.as<T>(),
                            op.rstd.as<float>()[row], n, op.dx.as<T>() + row * n, op.write_dx, dweight);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(rms_norm_rows);
HWY_EXPORT(rms_norm_backward_rows);

}  // namespace

void rms_norm(CpuStream& stream, const RmsNormForward& op) {
  const auto rows = op.y.shape.rows();
  stream.pool().for_range(rows, rows_per_task(op.y.shape[-1]), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rms_norm_rows)(op, begin, end);
  });
}

void rms_norm_backward(CpuStream& stream, const RmsNormBackward& op) {
  const auto rows = op.dx.shape.rows(), n = op.dx.shape[-1];
  const auto cut = row_blocks(rows);
  float* partials = cpu::scratch<cpu::Scratch::call>(cut.blocks * n);  // (blocks, n)
  stream.pool().for_range(rows, cut.rows_per_block, [&](std::int64_t begin, std::int64_t end) {
    float* dweight = partials + begin / cut.rows_per_block * n;
    std::memset(dweight, 0, static_cast<std::size_t>(n) * sizeof(float));
    HWY_DYNAMIC_DISPATCH(rms_norm_backward_rows)(op, begin, end, dweight);
  });
  if (op.dweight) add_partial_sums(stream, partials, cut.blocks, n, op.dweight, op.write_dweight);
}

}  // namespace zeepo
#endif
