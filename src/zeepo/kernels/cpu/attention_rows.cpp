#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/attention_rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "zeepo/kernels/cpu/attention_rows.h"
#include "zeepo/kernels/cpu/softmax_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

// row = exp(scale·row − shift), returning the sum.
HWY_INLINE float exp_and_sum(float* row, std::int64_t n, float scale, float shift) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto s = hn::Set(d, scale), m = hn::Set(d, shift);
  auto sums = hn::Zero(d);
  std::int64_t j = 0;
  for (; j + lanes <= n; j += lanes) {
    const auto weight = exp(d, hn::MulSub(hn::LoadU(d, row + j), s, m));
    sums = hn::Add(sums, weight);
    hn::StoreU(weight, d, row + j);
  }
  if (j < n) {
    const auto all = exp(d, hn::MulSub(load_part(d, row + j, n - j, 0), s, m));
    const auto weight = hn::IfThenElseZero(hn::FirstN(d, static_cast<std::size_t>(n - j)), all);
    sums = hn::Add(sums, weight);
    store_part(d, weight, n - j, row + j);
  }
  return hn::GetLane(hn::SumOfLanes(d, sums));
}

float softmax_block_simd(float* row, std::int64_t columns, Visible visible, float scale, RunningSoftmax& state) {
  std::fill(row, row + visible.begin, 0.0f);
  std::fill(row + visible.end, row + columns, 0.0f);
  if (visible.begin >= visible.end) return 1;
  const float largest = max_of(row + visible.begin, visible.end - visible.begin);
  const float max = std::max(state.max, scale * largest);
  const float correction = state.sum > 0 ? std::exp(state.max - max) : 1.0f;
  const float sum = exp_and_sum(row + visible.begin, visible.end - visible.begin, scale, max);
  state = {max, state.sum * correction + sum};
  return correction;
}

float largest_of_simd(const float* products, std::int64_t n) { return max_of(products, n); }

void softmax_backward_simd(float* products, float* dweights, const float* keep, std::int64_t columns, Visible visible,
                           float scale, float log_sum, float delta) {
  for (float* row : {products, dweights}) {
    std::fill(row, row + visible.begin, 0.0f);
    std::fill(row + visible.end, row + columns, 0.0f);
  }
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto s = hn::Set(d, scale), log = hn::Set(d, log_sum), del = hn::Set(d, delta);
  std::int64_t j = visible.begin;
  for (; j + lanes <= visible.end; j += lanes) {
    const auto weight = exp(d, hn::MulSub(hn::LoadU(d, products + j), s, log));
    const auto k = keep ? hn::LoadU(d, keep + j) : hn::Set(d, 1.0f);
    const auto dweight = hn::MulSub(hn::LoadU(d, dweights + j), k, del);
    hn::StoreU(hn::Mul(weight, k), d, products + j);
    hn::StoreU(hn::Mul(hn::Mul(weight, s), dweight), d, dweights + j);
  }
  if (const std::int64_t rest = visible.end - j; rest > 0) {
    const auto weight = exp(d, hn::MulSub(load_part(d, products + j, rest, 0), s, log));
    const auto k = keep ? load_part(d, keep + j, rest, 0) : hn::Set(d, 1.0f);
    const auto dweight = hn::MulSub(load_part(d, dweights + j, rest, 0), k, del);
    store_part(d, hn::Mul(weight, k), rest, products + j);
    store_part(d, hn::Mul(hn::Mul(weight, s), dweight), rest, dweights + j);
  }
}

float dot_simd(const float* x, const float* y, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sums = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo::cpu {
namespace {
HWY_EXPORT(softmax_block_simd);
HWY_EXPORT(largest_of_simd);
HWY_EXPORT(softmax_backward_simd);
HWY_EXPORT(dot_simd);
}  // namespace

float softmax_block(float* row, std::int64_t columns, Visible visible, float scale, RunningSoftmax& state) {
  return HWY_DYNAMIC_DISPATCH(softmax_block_simd)(row, columns, visible, scale, state);
}

float largest_of(const float* products, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(largest_of_simd)(products, n); }

void finish_row(float* x, float sum, std::int64_t n) {
  const float factor = 1 / sum;
  for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] * factor + 0.0f;
}

void softmax_backward_block(float* products, float* dweights, const float* keep, std::int64_t columns, Visible visible,
                            float scale, float log_sum, float delta) {
  HWY_DYNAMIC_DISPATCH(softmax_backward_simd)
  (products, dweights, keep, columns, visible, scale, log_sum, delta);
}

float dot(const float* x, const float* y, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(dot_simd)(x, y, n); }

void dropout_factors(RngKey key, std::uint64_t first, std::int64_t columns, float p, float* keep) {
  const float kept = 1 / (1 - p);
  for (std::int64_t j = 0; j < columns;) {
    const std::uint64_t index = first + static_cast<std::uint64_t>(j);
    const auto bits = philox(key, index / 4);
    for (std::uint64_t lane = index % 4; lane < 4 && j < columns; ++lane, ++j)
      keep[j] = static_cast<float>(bits[lane] >> 8) * 0x1p-24f >= p ? kept : 0.0f;
  }
}

void multiply(float* x, const float* factors, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factors[i];
}
void multiply(float* x, float factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) x[i] *= factor;
}

}  // namespace zeepo::cpu
#endif
