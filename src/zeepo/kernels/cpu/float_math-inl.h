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

// c[0]·x^(n−1) + ... + c[n−1], by Horner's rule.
template <std::size_t n>
HWY_INLINE Floats polynomial(Floats x, const float (&c)[n]) {
  Floats y = splat(c[0]);
  for (std::size_t i = 1; i < n; ++i) y = hn::MulAdd(y, x, splat(c[i]));
  return y;
}

// Clamped to arguments whose result is a normal number: below −87.3 it is about 1.2e-38, above 88 about 1.7e38.
HWY_INLINE Floats exponential(Floats x) {
  x = hn::Min(hn::Max(x, splat(-87.33f)), splat(88.0f));
  // x = k·ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, so that k times the first is exact.
  const auto k = hn::Round(hn::Mul(x, splat(1.44269504f)));
  const auto r = hn::NegMulAdd(k, splat(-2.12194440e-4f), hn::NegMulAdd(k, splat(0.693359375f), x));
  constexpr float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                         4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
  const auto y = hn::Add(hn::MulAdd(polynomial(r, c), hn::Mul(r, r), r), splat(1.0f));
  const hn::RebindToSigned<FloatTag> integers;
  return hn::BitCast(FloatTag(), hn::Add(hn::BitCast(integers, y), hn::ShiftLeft<23>(hn::ConvertTo(integers, k))));
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
  constexpr float c[] = {-2.911509049e-02f, 1.438187832e-01f, -2.553917679e-01f, 1.587974173e-01f, -2.284400150e-02f,
                         1.053923824e-01f,  1.198630318e-01f, 1.398575694e-01f,  1.396216599e-01f};
  const auto one = splat(1.0f);
  const auto t = hn::Div(one, hn::MulAdd(splat(0.35f), hn::Abs(x), one));
  const auto tail = hn::Mul(bell, hn::Mul(t, polynomial(t, c)));
  return hn::IfThenElse(hn::Lt(x, zero()), tail, hn::Sub(one, tail));
}

}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#endif
