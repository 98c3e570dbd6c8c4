// Vectors of fp32 from and to memory of any float type, and the step of a product of matrices. Included once for each
// Highway target.
#if defined(ZEEPO_KERNELS_CPU_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_LOAD_INL_H_
#undef ZEEPO_KERNELS_CPU_LOAD_INL_H_
#else
#define ZEEPO_KERNELS_CPU_LOAD_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>

#include "zeepo/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16* from) {
  const hn::RebindToUnsigned<D> d32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16* from) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, to_float(*from));
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> x, float* to) {
  hn::StoreU(x, d, to);
}
template <class D>
HWY_INLINE void store(D, hn::Vec<D> x, bf16* to) {
  const hn::RebindToUnsigned<D> d32;
  const hn::RebindToSigned<D> di32;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::BitCast(d32, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fff))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d32, 0x40));
  const auto kept = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(x)), quiet, rounded);
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, kept)), d16, reinterpret_cast<std::uint16_t*>(to));
}
template <class D>
HWY_INLINE void store(D, hn::Vec<D> x, f16* to) {
#if HWY_TARGET == HWY_SCALAR
  *to = from_float<f16>(hn::GetLane(x));
#else
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, x), d16, reinterpret_cast<hwy::float16_t*>(to));
#endif
}

// x·y + z, the step of every chain of a matrix product.
template <class D>
HWY_INLINE hn::Vec<D> fused([[maybe_unused]] D d, hn::Vec<D> x, hn::Vec<D> y, hn::Vec<D> z) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, std::fma(hn::GetLane(x), hn::GetLane(y), hn::GetLane(z)));
#else
  return hn::MulAdd(x, y, z);
#endif
}

// The first `count` lanes, fewer than a vector; the others hold `rest`, and are not stored.
template <class D, class T>
HWY_INLINE hn::Vec<D> load_part(D d, const T* from, std::int64_t count, float rest) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(hn::Set(d, rest), d, lanes);
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = to_float(from[i]);
  return hn::Load(d, lanes);
}
template <class D, class T>
HWY_INLINE void store_part(D d, hn::Vec<D> x, std::int64_t count, T* to) {
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (std::int64_t i = 0; i < count; ++i) to[i] = from_float<T>(lanes[i]);
}

}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
