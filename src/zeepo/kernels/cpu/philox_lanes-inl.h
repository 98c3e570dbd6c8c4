// uniform() of base/rng.h for many elements at a time, the same numbers. Per Highway target, like float_lanes-inl.h.
#if defined(ZEEPO_KERNELS_CPU_PHILOX_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_PHILOX_LANES_INL_H_
#undef ZEEPO_KERNELS_CPU_PHILOX_LANES_INL_H_
#else
#define ZEEPO_KERNELS_CPU_PHILOX_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include "zeepo/base/rng.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {

using CounterTag = hwy::HWY_NAMESPACE::ScalableTag<std::uint32_t>;
// Elements that one call of uniforms() gives: four words of each lane's counter. A power of two.
HWY_INLINE std::int64_t uniforms_at_once() {
  return 4 * static_cast<std::int64_t>(hwy::HWY_NAMESPACE::Lanes(CounterTag()));
}
inline constexpr std::size_t kMostUniformsAtOnce = 4 * hwy::HWY_NAMESPACE::MaxLanes(CounterTag());

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void uniforms(RngKey key, std::uint64_t first, float* HWY_RESTRICT out) {
  for (std::uint64_t j = 0; j < 4; ++j) out[j] = uniform(key, first + j);
}
#else

// The upper half of each lane's 64-bit product.
HWY_INLINE hwy::HWY_NAMESPACE::Vec<CounterTag> multiply_high(hwy::HWY_NAMESPACE::Vec<CounterTag> a,
                                                             hwy::HWY_NAMESPACE::Vec<CounterTag> b) {
  namespace hn = hwy::HWY_NAMESPACE;
  const CounterTag words;
  const hn::RepartitionToWide<CounterTag> wide;
  const auto even = hn::MulEven(a, b);
  const auto odd = hn::MulEven(hn::BitCast(words, hn::ShiftRight<32>(hn::BitCast(wide, a))), b);
  return hn::OddEven(hn::BitCast(words, odd), hn::BitCast(words, hn::ShiftRight<32>(even)));
}

// out[j] = uniform(key, first + j) for j < uniforms_at_once(). `first` is a multiple of 4, `out` aligned to a vector.
HWY_INLINE void uniforms(RngKey key, std::uint64_t first, float* HWY_RESTRICT out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const CounterTag words;
  const std::uint64_t counter = first / 4;
  const auto low = hn::Set(words, static_cast<std::uint32_t>(counter));
  auto c0 = hn::Add(low, hn::Iota(words, 0));
  const auto carry = hn::VecFromMask(words, hn::Lt(c0, low));  // −1 where the low word went round
  auto c1 = hn::Sub(hn::Set(words, static_cast<std::uint32_t>(counter >> 32)), carry);
  auto c2 = hn::Zero(words), c3 = hn::Zero(words);
  const auto m0 = hn::Set(words, 0xD2511F53u), m1 = hn::Set(words, 0xCD9E8D57u);
  auto k0 = static_cast<std::uint32_t>(key.value), k1 = static_cast<std::uint32_t>(key.value >> 32);
  for (int round = 0; round < 10; ++round) {
    const auto high0 = multiply_high(c0, m0), low0 = hn::Mul(c0, m0);
    const auto high1 = multiply_high(c2, m1), low1 = hn::Mul(c2, m1);
    c0 = hn::Xor(hn::Xor(high1, c1), hn::Set(words, k0));
    c1 = low1;
    c2 = hn::Xor(hn::Xor(high0, c3), hn::Set(words, k1));
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const hn::RebindToFloat<CounterTag> floats;
  const hn::RebindToSigned<CounterTag> integers;
  const auto unit = hn::Set(floats, 0x1p-24f);
  const auto scaled = [&](hn::Vec<CounterTag> bits) HWY_ATTR {
    return hn::Mul(hn::ConvertTo(floats, hn::BitCast(integers, hn::ShiftRight<8>(bits))), unit);
  };
  hn::StoreInterleaved4(scaled(c0), scaled(c1), scaled(c2), scaled(c3), floats, out);
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#endif
