#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "zeepo/kernels/cpu/softmax_row-inl.h"
#include "zeepo/kernels/softmax.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

// Returns the loss. `dlogits` may be null, or the logits themselves.
template <class T>
float cross_entropy_row(const T* logits, std::int64_t n, std::int32_t target, T* dlogits, float grad_scale) {
  if (target < 0) {
    if (dlogits) std::fill_n(dlogits, n, from_float<T>(0));
    return 0;
  }
  const RowSum row = row_sum(logits, n);
  const float distance = row.max - to_float(logits[target]);
  if (dlogits) {
    scaled_exp(logits, n, row.max, grad_scale / row.sum, dlogits);
    dlogits[target] = from_float<T>(grad_scale * (std::exp(-distance) / row.sum - 1));
  }
  return std::log(row.sum) + distance;
}

void cross_entropy_rows(ConstView logits, const std::int32_t* targets, float* losses, View dlogits, float grad_scale,
                        std::int64_t begin, std::int64_t end) {
  const std::int64_t n = logits.shape[-1];
  const auto rows = [&]<class T>(T) {
    for (std::int64_t i = begin; i < end; ++i) {
      T* gradient = dlogits ? dlogits.as<T>() + i * n : nullptr;
      losses[i] = cross_entropy_row(logits.as<T>() + i * n, n, targets[i], gradient, grad_scale);
    }
  };
  return logits.dtype == DType::f32 ? rows(float{}) : logits.dtype == DType::bf16 ? rows(bf16{}) : rows(f16{});
}

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "zeepo/base/error.h"

namespace zeepo {
namespace cpu {
namespace {
HWY_EXPORT(cross_entropy_rows);
}  // namespace
}  // namespace cpu

void cross_entropy(CpuStream& stream, ConstView logits, ConstView targets, View losses, View dlogits,
                   float grad_scale) {
  const std::int64_t rows = logits.shape.rows(), n = logits.shape[-1];
  const bool types = is_float(logits.dtype) && targets.dtype == DType::i32 && losses.dtype == DType::f32 &&
                     (!dlogits || dlogits.dtype == logits.dtype);
  if (!types || targets.elements() != rows || losses.elements() != rows ||
      (dlogits && !(dlogits.shape == logits.shape)))
    throw Error(
        "cross_entropy: logits {} {}, targets {} {}, losses {} {}: must be floats (rows, n), int32 (rows) and "
        "fp32 (rows), the gradient as the logits",
        name_of(logits.dtype), logits.shape.str(), name_of(targets.dtype), targets.shape.str(), name_of(losses.dtype),
        losses.shape.str());
  for (std::int64_t i = 0; i < rows; ++i)
    if (targets.as<std::int32_t>()[i] >= n)
      throw Error("cross_entropy: target {} of row {}: must be less than {}", targets.as<std::int32_t>()[i], i, n);
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 14) / std::max<std::int64_t>(1, n));
  stream.pool().for_range(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    using namespace cpu;
    HWY_DYNAMIC_DISPATCH(cross_entropy_rows)
    (logits, targets.as<std::int32_t>(), losses.as<float>(), dlogits, grad_scale, begin, end);
  });
}

}  // namespace zeepo
#endif
