#include <cmath>
#include <cstring>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/partial_sums.h"
#include "zeepo/kernels/cpu/scratch.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// Mean and deviation in two passes over the row, which stays in the first-level cache: one pass over squares would
// cancel for rows whose mean is large.
template <class T>
void normalize_row(const LayerNormForward& op, std::int64_t row, std::int64_t n) {
  const auto* x = op.x.as<T>() + row * n;
  auto sums = zero();
  if (op.delta) {
    const auto* delta = op.delta.as<T>() + row * n;
    auto* sum = op.sum.as<T>() + row * n;
    sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
      store(hn::Add(load(x + i, count), load(delta + i, count)), sum + i, count);
      sums = hn::Add(sums, load(sum + i, count));  // as rounded to T: what the backward pass will see
    });
    x = sum;
  } else {
    sweep(n, [&](std::int64_t i, auto count) HWY_ATTR { sums = hn::Add(sums, load(x + i, count)); });
  }
  const float mean = sum_lanes(sums) / static_cast<float>(n);
  const auto means = splat(mean);
  auto squares = zero();
  sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
    const auto centered = within(hn::Sub(load(x + i, count), means), count);
    squares = hn::MulAdd(centered, centered, squares);
  });
  const float rstd = 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(n) + op.eps);
  if (op.mean) op.mean.as<float>()[row] = mean;
  if (op.rstd) op.rstd.as<float>()[row] = rstd;

  const auto* weight = op.weight.as<T>();
  const auto* bias = op.bias.as<T>();
  auto* y = op.y.as<T>() + row * n;
  const auto rstds = splat(rstd);
  sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
    const auto normal = hn::Mul(hn::Sub(load(x + i, count), means), rstds);
    const auto offset = bias ? load(bias + i, count) : zero();
    store(hn::MulAdd(normal, load(weight + i, count), offset), y + i, count);
  });
}

void layer_norm_rows(const LayerNormForward& op, std::int64_t begin, std::int64_t end) {
  with_float_type(op.y.dtype, [&](auto zero_of_type) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row) normalize_row<decltype(zero_of_type)>(op, row, op.y.shape[-1]);
  });
}

// With h = (x − mean)·rstd and g = dy·weight:  dx = rstd·(g − mean(g) − h·mean(g·h)),  dweight += dy·h,  dbias += dy.
template <class T>
void differentiate_row(const LayerNormBackward& op, std::int64_t row, std::int64_t n, float* dweight, float* dbias) {
  const auto *dy = op.dy.as<T>() + row * n, *x = op.x.as<T>() + row * n, *weight = op.weight.as<T>();
  const auto means = splat(op.mean.as<float>()[row]), rstds = splat(op.rstd.as<float>()[row]);
  auto sum_g = zero(), sum_gh = zero();
  sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
    const auto d = load(dy + i, count), h = hn::Mul(hn::Sub(load(x + i, count), means), rstds);
    const auto g = hn::Mul(d, load(weight + i, count));
    sum_g = hn::Add(sum_g, g);
    sum_gh = hn::MulAdd(g, h, sum_gh);
    store(hn::MulAdd(d, h, load(dweight + i, count)), dweight + i, count);
    store(hn::Add(d, load(dbias + i, count)), dbias + i, count);
  });
  const auto mean_g = splat(sum_lanes(sum_g) / static_cast<float>(n));
  const auto mean_gh = splat(sum_lanes(sum_gh) / static_cast<float>(n));
  auto* dx = op.dx.as<T>() + row * n;
  sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
    const auto h = hn::Mul(hn::Sub(load(x + i, count), means), rstds);
    const auto g = hn::Mul(load(dy + i, count), load(weight + i, count));
    const auto before = op.write_dx == Write::add ? load(dx + i, count) : zero();
    store(hn::MulAdd(hn::NegMulAdd(h, mean_gh, hn::Sub(g, mean_g)), rstds, before), dx + i, count);
  });
}

void layer_norm_backward_rows(const LayerNormBackward& op, std::int64_t begin, std::int64_t end, float* dweight,
                              float* dbias) {
  with_float_type(op.dx.dtype, [&](auto zero_of_type) HWY_ATTR {
    for (std::int64_t row = begin; row < end; ++row)
      differentiate_row<decltype(zero_of_type)>(op, row, op.dx.shape[-1], dweight, dbias);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(layer_norm_rows);
HWY_EXPORT(layer_norm_backward_rows);

}  // namespace

void layer_norm(CpuStream& stream, const LayerNormForward& op) {
  const auto rows = op.y.shape.rows();
  stream.pool().for_range(rows, rows_per_task(op.y.shape[-1]), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(layer_norm_rows)(op, begin, end);
  });
}

void layer_norm_backward(CpuStream& stream, const LayerNormBackward& op) {
  const auto rows = op.dx.shape.rows(), n = op.dx.shape[-1];
  const auto cut = row_blocks(rows);
  float* partials = cpu::scratch<cpu::Scratch::call>(cut.blocks * 2 * n);  // (blocks, 2, n): weight, bias
  stream.pool().for_range(rows, cut.rows_per_block, [&](std::int64_t begin, std::int64_t end) {
    float* dweight = partials + begin / cut.rows_per_block * 2 * n;
    std::memset(dweight, 0, static_cast<std::size_t>(2 * n) * sizeof(float));
    HWY_DYNAMIC_DISPATCH(layer_norm_backward_rows)(op, begin, end, dweight, dweight + n);
  });
  if (op.dweight) add_partial_sums(stream, partials, cut.blocks, 2 * n, op.dweight, op.write_dweight);
  if (op.dbias) add_partial_sums(stream, partials + n, cut.blocks, 2 * n, op.dbias, op.write_dbias);
}

}  // namespace zeepo
#endif
