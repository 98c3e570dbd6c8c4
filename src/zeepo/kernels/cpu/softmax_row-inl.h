// The two passes of a softmax over one row of any float type. Included once for each Highway target.
#if defined(ZEEPO_KERNELS_CPU_SOFTMAX_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_SOFTMAX_ROW_INL_H_
#undef ZEEPO_KERNELS_CPU_SOFTMAX_ROW_INL_H_
#else
#define ZEEPO_KERNELS_CPU_SOFTMAX_ROW_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "zeepo/kernels/cpu/exp-inl.h"
#include "zeepo/kernels/cpu/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {

// The softmax of x is exp(x − max) / sum.
struct RowSum {
  float max, sum;
};

template <class T>
HWY_INLINE float max_of(const T* x, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  auto max = hn::Set(d, kLowest);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) max = hn::Max(load(d, x + i), max);
  if (i < n) max = hn::Max(load_part(d, x + i, n - i, kLowest), max);
  return hn::GetLane(hn::MaxOfLanes(d, max));
}

// One read of memory: a piece that fits the first cache is read for its maximum and again for its sum, and the sum so
// far is scaled when the maximum grew.
template <class T>
HWY_INLINE RowSum row_sum(const T* x, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  constexpr std::int64_t kChunk = 4096;
  RowSum row{kLowest, 0};
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t end = std::min(n, begin + kChunk);
    const float max = std::max(row.max, max_of(x + begin, end - begin));
    // Nothing but −inf so far (their sum is 0), or NaN, which max_of passes over: exp(x − 0) is right for both.
    const auto shift = hn::Set(d, max == kLowest ? 0.0f : max);
    auto a = hn::Zero(d), b = hn::Zero(d);
    std::int64_t i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      a = hn::Add(a, exp(d, hn::Sub(load(d, x + i), shift)));
      b = hn::Add(b, exp(d, hn::Sub(load(d, x + i + lanes), shift)));
    }
    for (; i + lanes <= end; i += lanes) a = hn::Add(a, exp(d, hn::Sub(load(d, x + i), shift)));
    if (i < end) a = hn::Add(a, exp(d, hn::Sub(load_part(d, x + i, end - i, kLowest), shift)));
    const float piece = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
    row.sum = (max > row.max && row.sum > 0 ? row.sum * std::exp(row.max - max) : row.sum) + piece;
    row.max = max;
  }
  return row;
}

// y = factor · exp(x − max); y may be x.
template <class T>
HWY_INLINE void scaled_exp(const T* x, std::int64_t n, float max, float factor, T* y) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto shift = hn::Set(d, max), scale = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, hn::Mul(exp(d, hn::Sub(load(d, x + i), shift)), scale), y + i);
  if (i < n) store_part(d, hn::Mul(exp(d, hn::Sub(load_part(d, x + i, n - i, max), shift)), scale), n - i, y + i);
}

}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
