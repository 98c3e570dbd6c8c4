#include <algorithm>
#include <cmath>
#include <type_traits>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/gradient_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// The order of the sum, the same on every backend and for every vector width; x has the block's n elements:
//
//   double chain[64] = {0};
//   for (i = 0; i < n; ++i) chain[i % 64] += double(x[i]) * double(x[i]);  // the square is exact, fused or not
//   for (half = 32; half > 0; half /= 2)
//     for (j = 0; j < half; ++j) chain[j] += chain[j + half];
//   partial = float(chain[0]);
constexpr std::int64_t kChains = 64;

using DoubleTag = hn::ScalableTag<double>;
constexpr auto kWidth = static_cast<std::int64_t>(hn::MaxLanes(DoubleTag()));

// n is a multiple of 64. The chains stay in registers over the loop.
void add_squares(const float* x, std::int64_t n, double* sums) {
  const DoubleTag doubles;
  const hn::Rebind<float, DoubleTag> floats;
  hn::Vec<DoubleTag> chains[kChains / kWidth];
  for (std::int64_t k = 0; k < kChains / kWidth; ++k) chains[k] = hn::Load(doubles, sums + k * kWidth);
  for (std::int64_t i = 0; i < n; i += kChains)
    for (std::int64_t k = 0; k < kChains / kWidth; ++k) {
      const auto v = hn::PromoteTo(doubles, hn::LoadU(floats, x + i + k * kWidth));
      chains[k] = hn::MulAdd(v, v, chains[k]);
    }
  for (std::int64_t k = 0; k < kChains / kWidth; ++k) hn::Store(chains[k], doubles, sums + k * kWidth);
}

template <class T>
float sum_block(const T* x, std::int64_t n) {
  HWY_ALIGN double sums[kChains] = {};
  std::int64_t i = 0;
  if constexpr (std::is_same_v<T, float>) {
    i = n / kChains * kChains;
    add_squares(x, i, sums);
  }
  // What is not fp32, and what is left over, goes through a buffer, filled up with zeros.
  constexpr std::int64_t kStaged = 2048;
  HWY_ALIGN float staged[kStaged];
  for (; i < n; i += kStaged) {
    const auto count = std::min(kStaged, n - i), whole = (count + kChains - 1) / kChains * kChains;
    sweep(count, [&](std::int64_t j, auto part) HWY_ATTR { store(load(x + i + j, part), staged + j, part); });
    std::fill(staged + count, staged + whole, 0.0f);
    add_squares(staged, whole, sums);
  }
  for (std::int64_t half = kChains / 2; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return static_cast<float>(sums[0]);
}

float sum_squares_block(ConstView x, std::int64_t begin, std::int64_t end) {
  float sum = 0;
  with_float_type(x.dtype, [&](auto zero_of_type)
                               HWY_ATTR { sum = sum_block(x.as<decltype(zero_of_type)>() + begin, end - begin); });
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(sum_squares_block);

}  // namespace

void sum_squares(CpuStream& stream, ConstView x, View partials) {
  stream.pool().for_range(x.elements(), kNormBlock, [&](std::int64_t begin, std::int64_t end) {
    partials.as<float>()[begin / kNormBlock] = HWY_DYNAMIC_DISPATCH(sum_squares_block)(x, begin, end);
  });
}

void finish_norm(CpuStream&, ConstView partials, float loss_scale, float clip, View control) {
  double sum = 0;
  for (std::int64_t i = 0; i < partials.elements(); ++i) sum += double{partials.as<float>()[i]};
  const double scale = double{loss_scale}, norm = std::sqrt(sum) / scale;
  const double limit = clip > 0 ? std::min(1.0, double{clip} / (norm + 1e-6)) : 1.0;
  *control.as<StepControl>() = {
      .norm = static_cast<float>(norm),
      .grad_factor = static_cast<float>(limit / scale),
      .skip = std::isfinite(sum) ? 0.0f : 1.0f,
  };
}

}  // namespace zeepo
#endif
