// Vectors of fp32 lanes loaded from and stored to fp32, bf16 and fp16 memory, with the bits of base/dtype.h (but that a
// signalling fp16 NaN becomes a quiet one). Compiled once for each Highway target: include it after foreach_target.h,
// and use it inside HWY_NAMESPACE only.
//
// sweep(n, step) walks n elements: step(i, Whole{}) for every full vector, then step(i, Part{count}) for the rest.
// Whole and Part choose how load and store treat the elements past the end; those lanes are zero and are never written.
#if defined(ZEEPO_KERNELS_CPU_FLOAT_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_FLOAT_LANES_INL_H_
#undef ZEEPO_KERNELS_CPU_FLOAT_LANES_INL_H_
#else
#define ZEEPO_KERNELS_CPU_FLOAT_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "zeepo/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using Floats = hn::Vec<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;           // the bits of each lane
using HalfWordTag = hn::Rebind<std::uint16_t, FloatTag>;  // the bits of each 16-bit element

struct Whole {};
struct Part {
  std::size_t count;
};

HWY_INLINE std::size_t lanes() { return hn::Lanes(FloatTag()); }
HWY_INLINE Floats zero() { return hn::Zero(FloatTag()); }
HWY_INLINE Floats splat(float x) { return hn::Set(FloatTag(), x); }

HWY_INLINE Floats load(const float* p, Whole) { return hn::LoadU(FloatTag(), p); }
HWY_INLINE void store(Floats x, float* p, Whole) { hn::StoreU(x, FloatTag(), p); }

HWY_INLINE Floats load(const bf16* p, Whole) {
  const auto words = hn::PromoteTo(WordTag(), hn::LoadU(HalfWordTag(), &p->bits));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(words));
}
// The hardware's own conversion flushes subnormal numbers, so the rounding is done on the bits.
HWY_INLINE void store(Floats x, bf16* p, Whole) {
  const WordTag words;
  const auto bits = hn::BitCast(words, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(words, 0x7fff)), odd);
  const auto quiet = hn::Or(bits, hn::Set(words, 0x400000));
  const auto result = hn::IfThenElse(hn::RebindMask(words, hn::IsNaN(x)), quiet, rounded);
  hn::StoreU(hn::TruncateTo(HalfWordTag(), hn::ShiftRight<16>(result)), HalfWordTag(), &p->bits);
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
HWY_INLINE Floats load(const f16* p, Whole) {
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  return hn::PromoteTo(FloatTag(), hn::BitCast(halves, hn::LoadU(HalfWordTag(), &p->bits)));
}
HWY_INLINE void store(Floats x, f16* p, Whole) {
  // The conversion would keep some of a NaN's payload; base/dtype.h has one NaN of each sign.
  const auto nan = hn::CopySign(splat(std::bit_cast<float>(0x7fc00000u)), x);
  const auto clean = hn::IfThenElse(hn::IsNaN(x), nan, x);
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  hn::StoreU(hn::BitCast(HalfWordTag(), hn::DemoteTo(halves, clean)), HalfWordTag(), &p->bits);
}
#else  // no conversion instructions that are sure to round to even
HWY_INLINE Floats load(const f16* p, Whole) {
  HWY_ALIGN float x[hn::MaxLanes(FloatTag())];
  for (std::size_t i = 0; i < lanes(); ++i) x[i] = to_float(p[i]);
  return hn::Load(FloatTag(), x);
}
HWY_INLINE void store(Floats v, f16* p, Whole) {
  HWY_ALIGN float x[hn::MaxLanes(FloatTag())];
  hn::Store(v, FloatTag(), x);
  for (std::size_t i = 0; i < lanes(); ++i) p[i] = from_float<f16>(x[i]);
}
#endif

template <class T>
HWY_INLINE Floats load(const T* p, Part part) {
  HWY_ALIGN T x[hn::MaxLanes(FloatTag())] = {};
  std::memcpy(x, p, part.count * sizeof(T));
  return load(x, Whole{});
}
template <class T>
HWY_INLINE void store(Floats v, T* p, Part part) {
  HWY_ALIGN T x[hn::MaxLanes(FloatTag())];
  store(v, x, Whole{});
  std::memcpy(p, x, part.count * sizeof(T));
}

// x with zeros past the end, for sums over values that are not zero there by themselves.
HWY_INLINE Floats within(Floats x, Whole) { return x; }
HWY_INLINE Floats within(Floats x, Part part) { return hn::IfThenElseZero(hn::FirstN(FloatTag(), part.count), x); }

// a·b + c rounded once, on every target.
HWY_INLINE Floats fused(Floats a, Floats b, Floats c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float x[hn::MaxLanes(FloatTag())], y[hn::MaxLanes(FloatTag())], z[hn::MaxLanes(FloatTag())];
  hn::Store(a, FloatTag(), x);
  hn::Store(b, FloatTag(), y);
  hn::Store(c, FloatTag(), z);
  for (std::size_t i = 0; i < lanes(); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(FloatTag(), z);
#endif
}

HWY_INLINE float sum_lanes(Floats x) { return hn::GetLane(hn::SumOfLanes(FloatTag(), x)); }

template <class Step>
HWY_INLINE void sweep(std::int64_t n, const Step& step) {
  const auto width = static_cast<std::int64_t>(lanes());
  std::int64_t i = 0;
  for (; i + width <= n; i += width) step(i, Whole{});
  if (i < n) step(i, Part{static_cast<std::size_t>(n - i)});
}

}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#endif
