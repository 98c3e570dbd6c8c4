// exp for softmax: arguments up to 88, at most 2 ulp off; 0 below -87.3, and NaN stays NaN, so that a diverged run
// shows. (Highway's own Exp turns NaN into 0.) Included once for each Highway target.
#if defined(ZEEPO_KERNELS_CPU_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_EXP_INL_H_
#undef ZEEPO_KERNELS_CPU_EXP_INL_H_
#else
#define ZEEPO_KERNELS_CPU_EXP_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace zeepo::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) from Cephes' polynomial, 2^n put together from bits.
template <class D>
HWY_INLINE hn::Vec<D> exp(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  auto r = hn::MulAdd(n, hn::Set(d, -0.693359375f), x);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r);
  auto p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Mul(p, power));
}

}  // namespace zeepo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
