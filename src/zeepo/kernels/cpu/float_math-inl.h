// exp, sigmoid and the normal distribution of fp32 vectors, a few units in the last place from exact. Per Highway
// target, like float_lanes-inl.h. NaN arguments give some number: callers multiply by an argument that is NaN too.
#if defined(ZEEPO_KERNELS_CPU_FLOAT_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_FLOAT_MATH_INL_H_
#undef ZEEPO_KERNELS_CPU_FLOAT_MATH_INL_H_
#else
#define ZEEPO_KERNELS_CPU_FLOAT_MATH_INL_H_
#endif

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {

// These are bound by the length of their chains of operations: polynomials are added up in pairs (Estrin's scheme), and
// rounding to a whole number is an addition that pushes the fraction out.

// Clamped to arguments whose result is a normal number: below −87.3 it is about 1.2e-38, above 88 about 1.7e38.
HWY_INLINE Floats exponential(Floats x) {
  x = hn::Min(hn::Max(x, splat(-87.33f)), splat(88.0f));
  // x = k·ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, so that k times the first is exact. The low bits of
  // `pushed` are k.
  const auto shift = splat(0x1.8p23f);
  const auto pushed = hn::MulAdd(x, splat(1.44269504f), shift);
  const auto k = hn::Sub(pushed, shift);
  const auto r = hn::NegMulAdd(k, splat(-2.12194440e-4f), hn::NegMulAdd(k, splat(0.693359375f), x));
  const auto r2 = hn::Mul(r, r);
  const auto high = hn::MulAdd(splat(1.9875691500e-4f), r, splat(1.3981999507e-3f));
  const auto middle = hn::MulAdd(splat(8.3334519073e-3f), r, splat(4.1665795894e-2f));
  const auto low = hn::MulAdd(splat(1.6666665459e-1f), r, splat(5.0000001201e-1f));
  const auto p = hn::MulAdd(hn::MulAdd(high, r2, middle), r2, low);
  const auto y = hn::MulAdd(p, r2, hn::Add(r, splat(1.0f)));
  const auto power = hn::ShiftLeft<23>(hn::BitCast(WordTag(), pushed));
  return hn::BitCast(FloatTag(), hn::Add(hn::BitCast(WordTag(), y), power));
}

// 1 / (1 + exp(−x)); exactly 0 below −88, so that x·sigmoid(x) vanishes there.
HWY_INLINE Floats sigmoid(Floats x) {
  const auto one = splat(1.0f);
  const auto s = hn::Div(one, hn::Add(one, exponential(hn::Neg(x))));
  return hn::IfThenElseZero(hn::Ge(x, splat(-88.0f)), s);
}

// The normal distribution's share below x, (1 + erf(x/√2)) / 2, from bell = exp(−x²/2). The smaller tail is bell·t·P(t)
// with t = 1/(1 + 0.35·|x|) and P fitted for the least relative error (3e-8 up to |x| = 13): unlike 1 + erf, it does
// not cancel for negative x.
HWY_INLINE Floats normal_share(Floats x, Floats bell) {
  const auto one = splat(1.0f);
  const auto t = hn::Div(one, hn::MulAdd(splat(0.35f), hn::Abs(x), one));
  const auto t2 = hn::Mul(t, t), t4 = hn::Mul(t2, t2);
  const auto c01 = hn::MulAdd(splat(1.398575694e-01f), t, splat(1.396216599e-01f));
  const auto c23 = hn::MulAdd(splat(1.053923824e-01f), t, splat(1.198630318e-01f));
  const auto c45 = hn::MulAdd(splat(1.587974173e-01f), t, splat(-2.284400150e-02f));
  const auto c67 = hn::MulAdd(splat(1.438187832e-01f), t, splat(-2.553917679e-01f));
  const auto c4567 = hn::MulAdd(splat(-2.911509049e-02f), t4, hn::MulAdd(c67, t2, c45));
  const auto p = hn::MulAdd(c4567, t4, hn::MulAdd(c23, t2, c01));
  const auto tail = hn::Mul(hn::Mul(bell, t), p);
  return hn::IfThenElse(hn::Lt(x, zero()), tail, hn::Sub(one, tail));
}

}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#endif
