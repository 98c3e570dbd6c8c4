// RMS normalisation of one row, forward and backward; a row is a whole row or one head. Per Highway target, like
// float_lanes-inl.h.
#if defined(ZEEPO_KERNELS_CPU_RMS_NORM_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_RMS_NORM_ROW_INL_H_
#undef ZEEPO_KERNELS_CPU_RMS_NORM_ROW_INL_H_
#else
#define ZEEPO_KERNELS_CPU_RMS_NORM_ROW_INL_H_
#endif

#include <cmath>

#include "zeepo/kernels/cpu/float_lanes-inl.h"
#include "zeepo/kernels/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {

// y = x·rstd·weight; returns rstd. y may be x.
template <class T>
float rms_norm_row(const T* x, const T* weight, float eps, std::int64_t n, T* y) {
  auto squares = zero();
  sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
    const auto v = load(x + i, count);
    squares = hn::MulAdd(v, v, squares);
  });
  const float rstd = 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(n) + eps);
  const auto rstds = splat(rstd);
  sweep(n, [&](std::int64_t i, auto count)
               HWY_ATTR { store(hn::Mul(hn::Mul(load(x + i, count), rstds), load(weight + i, count)), y + i, count); });
  return rstd;
}

// With h = x·rstd and g = dy·weight:  dx = rstd·(g − h·mean(g·h)),  dweight (fp32) += dy·h.
template <class T>
void rms_norm_row_backward(const T* dy, const T* x, const T* weight, float rstd, std::int64_t n, T* dx, Write write_dx,
                           float* dweight) {
  const auto rstds = splat(rstd);
  auto sum_gh = zero();
  sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
    const auto d = load(dy + i, count), h = hn::Mul(load(x + i, count), rstds);
    sum_gh = hn::MulAdd(hn::Mul(d, load(weight + i, count)), h, sum_gh);
    store(hn::MulAdd(d, h, load(dweight + i, count)), dweight + i, count);
  });
  const auto mean_gh = splat(sum_lanes(sum_gh) / static_cast<float>(n));
  sweep(n, [&](std::int64_t i, auto count) HWY_ATTR {
    const auto h = hn::Mul(load(x + i, count), rstds);
    const auto g = hn::Mul(load(dy + i, count), load(weight + i, count));
    const auto before = write_dx == Write::add ? load(dx + i, count) : zero();
    store(hn::MulAdd(hn::NegMulAdd(h, mean_gh, g), rstds, before), dx + i, count);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#endif
