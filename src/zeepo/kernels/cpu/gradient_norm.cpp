#include <algorithm>
#include <cmath>
#include <type_traits>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/gradient_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/gradient_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// The order of a leaf's sum, the same on every backend and for every vector width; x has the leaf's 128 elements:
//
//   double chain[64] = {0};
//   for (i = 0; i < 128; ++i) chain[i % 64] += double(x[i]) * double(x[i]);  // the square is exact, fused or not
//   for (half = 32; half > 0; half /= 2)
//     for (j = 0; j < half; ++j) chain[j] += chain[j + half];
//   leaf = float(chain[0]);
constexpr std::int64_t kChains = 64;
static_assert(kNormLeaf == 2 * kChains);

using DoubleTag = hn::ScalableTag<double>;
constexpr auto kWidth = static_cast<std::int64_t>(hn::MaxLanes(DoubleTag()));

float sum_leaf(const float* x) {
  const DoubleTag doubles;
  const hn::Rebind<float, DoubleTag> floats;
  constexpr std::int64_t kVectors = kChains / kWidth;
  hn::Vec<DoubleTag> chains[kVectors];
  for (std::int64_t k = 0; k < kVectors; ++k) {
    const auto first = hn::PromoteTo(doubles, hn::LoadU(floats, x + k * kWidth));
    const auto second = hn::PromoteTo(doubles, hn::LoadU(floats, x + kChains + k * kWidth));
    chains[k] = hn::MulAdd(second, second, hn::Mul(first, first));
  }
  for (std::int64_t half = kVectors / 2; half > 0; half /= 2)
    for (std::int64_t k = 0; k < half; ++k) chains[k] = hn::Add(chains[k], chains[k + half]);
  HWY_ALIGN double sums[kWidth];
  hn::Store(chains[0], doubles, sums);
  for (std::int64_t half = kWidth / 2; half > 0; half /= 2)
    for (std::int64_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  return static_cast<float>(sums[0]);
}

// Leaves of the n elements of x, the last one filled up with zeros.
template <class T>
void sum_leaves(const T* x, std::int64_t n, float* leaves) {
  HWY_ALIGN float staged[kNormLeaf];
  for (std::int64_t i = 0; i < n; i += kNormLeaf) {
    const std::int64_t count = std::min(kNormLeaf, n - i);
    if constexpr (std::is_same_v<T, float>) {
      if (count == kNormLeaf) {
        *leaves++ = sum_leaf(x + i);
        continue;
      }
    }
    sweep(count, [&](std::int64_t j, auto part) HWY_ATTR { store(load(x + i + j, part), staged + j, part); });
    std::fill(staged + count, staged + kNormLeaf, 0.0f);
    *leaves++ = sum_leaf(staged);
  }
}

void sum_leaves_of(ConstView x, std::int64_t begin, std::int64_t end, float* leaves) {
  with_float_type(x.dtype, [&](auto zero_of_type)
                               HWY_ATTR { sum_leaves(x.as<decltype(zero_of_type)>() + begin, end - begin, leaves); });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(sum_leaves_of);

// The root of a tree over 2^level values, which are used up.
float tree_sum(float* values, int level) {
  for (int count = 1 << level; count > 1; count /= 2)
    for (int i = 0; i < count / 2; ++i) values[i] = values[2 * i] + values[2 * i + 1];
  return values[0];
}

}  // namespace

void sum_squares(CpuStream& stream, ConstView x, std::int64_t begin, View nodes) {
  const std::int64_t n = x.elements(), end = begin + n;
  if (n == 0) return;
  const std::int64_t first = begin / kNormBlock, blocks = norm_blocks(end) - first;
  const std::int64_t head = norm_nodes(begin, std::min(end, (first + 1) * kNormBlock) - begin);  // of the first block
  stream.pool().for_range(blocks, 1, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t block = from; block < to; ++block) {
      const std::int64_t origin = (first + block) * kNormBlock;
      const std::int64_t low = std::max(begin, origin), high = std::min(end, origin + kNormBlock);
      float leaves[kNormLeaves];
      HWY_DYNAMIC_DISPATCH(sum_leaves_of)(x, low - begin, high - begin, leaves);
      float* out = nodes.as<float>() + (block == 0 ? 0 : head + block - 1);
      float* at = leaves;
      for_norm_nodes(low, high - low, [&](std::int64_t, std::uint32_t, int level) {
        *out++ = tree_sum(at, level);
        at += 1 << level;
      });
    }
  });
}

void merge_norm_nodes(CpuStream& stream, ConstView nodes, ConstView table, View blocks) {
  const std::int64_t count = blocks.elements();
  const auto *starts = table.as<std::int32_t>(), *entries = starts + count + 1;
  constexpr std::int64_t kGrain = 4096;
  stream.pool().for_range(count, kGrain, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t block = from; block < to; ++block) {
      float values[kNormLevels + 1];
      int levels[kNormLevels + 1], height = 0;
      for (std::int32_t i = starts[block]; i < starts[block + 1]; ++i) {
        float value = nodes.as<float>()[entries[2 * i]];
        int level = entries[2 * i + 1];
        for (; height > 0 && levels[height - 1] == level; ++level) value = values[--height] + value;
        values[height] = value;
        levels[height++] = level;
      }
      float sum = height > 0 ? values[--height] : 0;
      while (height > 0) sum = values[--height] + sum;  // leaves that are missing at the end are zero
      blocks.as<float>()[block] = sum;
    }
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
