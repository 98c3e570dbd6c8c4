#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/widen.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "zeepo/kernels/cpu/load-inl.h"
#include "zeepo/kernels/cpu/widen.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace {

template <class From, class To>
void convert(const From* from, std::int64_t n, To* to) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(d, load(d, from + i), to + i);
  for (; i < n; ++i) to[i] = from_float<To>(to_float(from[i]));
}

void widen_bf16(const bf16* from, std::int64_t n, float* to) { convert(from, n, to); }
void widen_f16(const f16* from, std::int64_t n, float* to) { convert(from, n, to); }
void narrow_bf16(const float* from, std::int64_t n, bf16* to) { convert(from, n, to); }
void narrow_f16(const float* from, std::int64_t n, f16* to) { convert(from, n, to); }

}  // namespace
}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <cstring>

#include "zeepo/base/error.h"

namespace zeepo::cpu {

HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f16);

void widen(const void* from, DType dtype, std::int64_t n, float* to) {
  switch (dtype) {
    case DType::f32: std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::bf16: HWY_DYNAMIC_DISPATCH(widen_bf16)(static_cast<const bf16*>(from), n, to); return;
    case DType::f16: HWY_DYNAMIC_DISPATCH(widen_f16)(static_cast<const f16*>(from), n, to); return;
    default: throw Error("widen: {} is not a float type", name_of(dtype));
  }
}

void narrow(const float* from, std::int64_t n, void* to, DType dtype) {
  switch (dtype) {
    case DType::f32: std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float)); return;
    case DType::bf16: HWY_DYNAMIC_DISPATCH(narrow_bf16)(from, n, static_cast<bf16*>(to)); return;
    case DType::f16: HWY_DYNAMIC_DISPATCH(narrow_f16)(from, n, static_cast<f16*>(to)); return;
    default: throw Error("narrow: {} is not a float type", name_of(dtype));
  }
}

}  // namespace zeepo::cpu
#endif
