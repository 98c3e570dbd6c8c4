#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "zeepo/kernels/cpu/softmax_row-inl.h"
#include "zeepo/kernels/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

template <class T>
void softmax_row(const T* x, std::int64_t n, T* y) {
  const RowSum row = row_sum(x, n);
  scaled_exp(x, n, row.max, 1 / row.sum, y);
}

template <class T>
void softmax_backward_row(const T* y, const T* dy, std::int64_t n, T* dx) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sums = hn::MulAdd(load(d, y + i), load(d, dy + i), sums);
  if (i < n) sums = hn::MulAdd(load_part(d, y + i, n - i, 0), load_part(d, dy + i, n - i, 0), sums);
  const auto sum = hn::SumOfLanes(d, sums);
  for (i = 0; i + lanes <= n; i += lanes) store(d, hn::Mul(load(d, y + i), hn::Sub(load(d, dy + i), sum)), dx + i);
  if (i == n) return;
  const auto last = hn::Mul(load_part(d, y + i, n - i, 0), hn::Sub(load_part(d, dy + i, n - i, 0), sum));
  store_part(d, last, n - i, dx + i);
}

void softmax_rows(ConstView x, View y, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = x.shape[-1];
  const auto rows = [&]<class T>(T) {
    for (std::int64_t i = begin; i < end; ++i) softmax_row(x.as<T>() + i * n, n, y.as<T>() + i * n);
  };
  return x.dtype == DType::f32 ? rows(float{}) : x.dtype == DType::bf16 ? rows(bf16{}) : rows(f16{});
}

void softmax_backward_rows(ConstView y, ConstView dy, View dx, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = y.shape[-1];
  const auto rows = [&]<class T>(T) {
    for (std::int64_t i = begin * n; i < end * n; i += n)
      softmax_backward_row(y.as<T>() + i, dy.as<T>() + i, n, dx.as<T>() + i);
  };
  return y.dtype == DType::f32 ? rows(float{}) : y.dtype == DType::bf16 ? rows(bf16{}) : rows(f16{});
}

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "zeepo/base/error.h"

namespace zeepo {
namespace cpu {
namespace {

HWY_EXPORT(softmax_rows);
HWY_EXPORT(softmax_backward_rows);

void check_same(const char* op, ConstView a, ConstView b) {
  if (a.dtype != b.dtype || !(a.shape == b.shape) || !is_float(a.dtype))
    throw Error("{}: {} {} and {} {}: must be the same shape and float type", op, name_of(a.dtype), a.shape.str(),
                name_of(b.dtype), b.shape.str());
}

// Enough rows for a task that is worth waking a thread for.
std::int64_t rows_per_task(std::int64_t n) {
  return std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, n));
}

}  // namespace
}  // namespace cpu

void softmax(CpuStream& stream, ConstView x, View y) {
  cpu::check_same("softmax", x, y);
  stream.pool().for_range(x.shape.rows(), cpu::rows_per_task(x.shape[-1]), [&](std::int64_t begin, std::int64_t end) {
    using namespace cpu;
    HWY_DYNAMIC_DISPATCH(softmax_rows)(x, y, begin, end);
  });
}

void softmax_backward(CpuStream& stream, ConstView y, ConstView dy, View dx) {
  cpu::check_same("softmax_backward", y, dy);
  cpu::check_same("softmax_backward", y, dx);
  stream.pool().for_range(y.shape.rows(), cpu::rows_per_task(y.shape[-1]), [&](std::int64_t begin, std::int64_t end) {
    using namespace cpu;
    HWY_DYNAMIC_DISPATCH(softmax_backward_rows)(y, dy, dx, begin, end);
  });
}

void sum(CpuStream&, ConstView x, float factor, View sum, bool add_to_sum) {
  if (x.dtype != DType::f32 || sum.dtype != DType::f32 || sum.elements() != 1)
    throw Error("sum: {} {} into {} {}: must be fp32 into one fp32", name_of(x.dtype), x.shape.str(),
                name_of(sum.dtype), sum.shape.str());
  double total = 0;
  for (std::int64_t i = 0; i < x.elements(); ++i) total += x.as<float>()[i];
  total *= factor;
  *sum.as<float>() = static_cast<float>(add_to_sum ? *sum.as<float>() + total : total);
}

}  // namespace zeepo
#endif
