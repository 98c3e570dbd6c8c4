// Moments of a flat range in their three forms (kernels/moments.h), as vectors. Per Highway target, like
// float_lanes-inl.h.
//
// A step walks blocks of kMomentBlock: open(block, n), then get and put for each vector, then settle(block), finish(i,
// chance) for each vector of the whole block, and close(block, n).
#if defined(ZEEPO_KERNELS_CPU_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_MOMENTS_INL_H_
#undef ZEEPO_KERNELS_CPU_MOMENTS_INL_H_
#else
#define ZEEPO_KERNELS_CPU_MOMENTS_INL_H_
#endif

#include <algorithm>

#include "zeepo/kernels/cpu/float_lanes-inl.h"
#include "zeepo/kernels/moments.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {

using Words = hn::Vec<WordTag>;
enum class Order { first, second };  // of the moment

HWY_INLINE Words splat_word(std::uint32_t x) { return hn::Set(WordTag(), x); }

// chance_bits() of weights i, i + 1, ... of a block.
HWY_INLINE Words chance_words(RngKey block, std::int64_t i) {
  const auto low = static_cast<std::uint32_t>(block.value), high = static_cast<std::uint32_t>(block.value >> 32);
  auto x = hn::Add(splat_word(low + static_cast<std::uint32_t>(i)), hn::Iota(WordTag(), 0));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), splat_word(0x7feb352du));
  x = hn::Xor(x, hn::Xor(hn::ShiftRight<15>(x), splat_word(high)));
  x = hn::Mul(x, splat_word(0x846ca68bu));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}
template <Order order>
HWY_INLINE Words half_of(Words chance) {
  if constexpr (order == Order::first)
    return hn::And(chance, splat_word(0xffff));
  else
    return hn::ShiftRight<16>(chance);
}

struct PlainMoment {
  static constexpr bool kNarrow = false;
  float* values;

  template <class Count>
  HWY_INLINE Floats get(std::int64_t i, Count count) const {
    return load(values + i, count);
  }
  template <class Count>
  HWY_INLINE void put(Floats x, std::int64_t i, Count count) const {
    store(x, values + i, count);
  }
};

template <Order order>
struct HalfMoment {
  static constexpr bool kNarrow = true, kShares = false;
  bf16* values;

  void open(std::int64_t, std::int64_t) const {}
  template <class Count>
  HWY_INLINE Floats get(std::int64_t i, Count count) const {
    return load(values + i, count);
  }
  HWY_INLINE void put(Floats x, std::int64_t i, Whole, Words chance) const {
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::BitCast(WordTag(), x), half_of<order>(chance)));
    hn::StoreU(hn::TruncateTo(HalfWordTag(), rounded), HalfWordTag(), &values[i].bits);
  }
  HWY_INLINE void put(Floats x, std::int64_t i, Part part, Words chance) const {
    HWY_ALIGN bf16 narrow[hn::MaxLanes(FloatTag())];
    HalfMoment{narrow}.put(x, 0, Whole{}, chance);
    std::memcpy(values + i, narrow, part.count * sizeof(bf16));
  }
};

template <Order order>
struct ByteMoment {
  static constexpr bool kNarrow = true, kShares = true;
  static constexpr int kSpan = order == Order::first ? kFirstMomentSpan : kSecondMomentSpan;
  using ByteTag = hn::Rebind<std::uint8_t, FloatTag>;

  std::uint8_t *values, *exponents;
  std::int64_t begin = 0;  // of the open block
  std::uint32_t base = 0;  // the bits of the least number that is not evenly spaced
  HWY_ALIGN float fresh[kMomentBlock];
  HWY_ALIGN std::uint8_t codes[kMomentBlock];

  ByteMoment(std::uint8_t* all, std::uint8_t* shared) : values(all), exponents(shared) {}

  static std::uint32_t base_of(std::uint32_t exponent) {
    return (std::clamp(exponent, kLeastExponent, kLargestExponent) - kSpan) << 23;
  }
  HWY_INLINE void open(std::int64_t block, std::int64_t n) {
    begin = block;
    base = base_of(exponents[block / kMomentBlock]);
    if (n < kMomentBlock) std::fill(std::begin(fresh), std::end(fresh), 0.0f);
  }
  HWY_INLINE Floats get(std::int64_t i, Whole) const {
    const auto bytes = hn::PromoteTo(WordTag(), hn::LoadU(ByteTag(), values + i));
    const auto magnitude = order == Order::first ? hn::And(bytes, splat_word(0x7f)) : bytes;
    const auto shifted = hn::Add(hn::ShiftLeft<kCodeShift>(magnitude), splat_word(base));
    const auto spaced = hn::Sub(hn::BitCast(FloatTag(), shifted), hn::BitCast(FloatTag(), splat_word(base)));
    const auto scaled = hn::BitCast(FloatTag(), hn::Sub(shifted, splat_word(1u << 23)));
    const auto x = hn::Min(spaced, scaled);  // each is the smaller one where it holds
    if constexpr (order == Order::second) return x;
    const auto sign = hn::ShiftLeft<24>(hn::AndNot(splat_word(0x7f), bytes));
    return hn::Or(x, hn::BitCast(FloatTag(), sign));
  }
  HWY_INLINE Floats get(std::int64_t i, Part part) const {
    HWY_ALIGN std::uint8_t some[hn::MaxLanes(FloatTag())] = {};
    std::memcpy(some, values + i, part.count);
    ByteMoment rest(some, exponents);
    rest.base = base;
    return rest.get(0, Whole{});
  }
  // Kept aside until the block's exponent is known.
  template <class Count>
  HWY_INLINE void put(Floats x, std::int64_t i, Count count, Words) {
    hn::Store(within(x, count), FloatTag(), fresh + (i - begin));
  }
  HWY_INLINE void settle(std::int64_t block) {
    const auto width = static_cast<std::int64_t>(lanes());
    auto largest = zero();
    for (std::int64_t i = 0; i < kMomentBlock; i += width)
      largest = hn::Max(largest, hn::Abs(hn::Load(FloatTag(), fresh + i)));
    const auto most = std::bit_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(FloatTag(), largest)));
    const auto exponent = std::min((most + kRoundUp) >> 23, kLargestExponent);
    exponents[block / kMomentBlock] = static_cast<std::uint8_t>(exponent);
    base = base_of(exponent);
  }
  HWY_INLINE void finish(std::int64_t i, Words chance) {
    hn::StoreU(hn::TruncateTo(ByteTag(), code(hn::Load(FloatTag(), fresh + i), chance)), ByteTag(), codes + i);
  }
  HWY_INLINE void close(std::int64_t block, std::int64_t n) const {
    std::memcpy(values + block, codes, static_cast<std::size_t>(n));
  }
  HWY_INLINE Words code(Floats x, Words chance) const {
    const auto size = hn::Abs(x);
    const auto bits = hn::BitCast(WordTag(), size), least = splat_word(base);
    const auto spaced = hn::Sub(hn::BitCast(WordTag(), hn::Add(size, hn::BitCast(FloatTag(), least))), least);
    const auto scaled = hn::Sub(bits, splat_word(base - (1u << 23)));
    const hn::RebindToSigned<FloatTag> integers;  // each is the larger one where it holds; `scaled` may be negative
    const auto exact = hn::BitCast(WordTag(), hn::Max(hn::BitCast(integers, spaced), hn::BitCast(integers, scaled)));
    auto result = hn::ShiftRight<kCodeShift>(hn::Add(exact, hn::ShiftLeft<4>(half_of<order>(chance))));
    if constexpr (order == Order::first) {
      result = hn::Min(result, splat_word(0x7f));
      return hn::Or(result, hn::ShiftRight<24>(hn::BitCast(WordTag(), hn::Xor(x, size))));
    }
    const auto least_code = hn::IfThenElseZero(hn::Ne(bits, splat_word(0)), splat_word(1));
    return hn::Max(hn::Min(result, splat_word(0xff)), least_code);
  }
};

// step(i, count, chance words) for n elements, block by block.
template <class M, class V, class Step>
HWY_INLINE void in_moment_blocks(std::int64_t n, const Chance& chance, M& m, V& v, const Step& step) {
  for (std::int64_t block = 0; block < n; block += kMomentBlock) {
    const RngKey key = block_key(chance.key, (chance.first + block) / kMomentBlock);
    const std::int64_t count = std::min(kMomentBlock, n - block);
    m.open(block, count);
    v.open(block, count);
    sweep(count, [&](std::int64_t i, auto lanes_used) HWY_ATTR { step(block + i, lanes_used, chance_words(key, i)); });
    if constexpr (M::kShares) {
      m.settle(block);
      v.settle(block);
      for (std::int64_t i = 0; i < kMomentBlock; i += static_cast<std::int64_t>(lanes())) {
        const auto bits = chance_words(key, i);
        m.finish(i, bits);
        v.finish(i, bits);
      }
      m.close(block, count);
      v.close(block, count);
    }
  }
}

// Calls f with the form that the dtypes say, or throws Error.
template <class F>
void with_moments(const Moment& m, const Moment& v, std::int64_t begin, const F& f) {
  check_moments(m, v);
  if (m.values.dtype == DType::f32)
    return f(PlainMoment{m.values.as<float>() + begin}, PlainMoment{v.values.as<float>() + begin});
  if (m.values.dtype == DType::bf16)
    return f(HalfMoment<Order::first>{m.values.as<bf16>() + begin},
             HalfMoment<Order::second>{v.values.as<bf16>() + begin});
  const auto codes = [&](const Moment& of) { return of.values.as<std::uint8_t>() + begin; };
  const auto exponents = [&](const Moment& of) { return of.exponents.as<std::uint8_t>() + begin / kMomentBlock; };
  f(ByteMoment<Order::first>(codes(m), exponents(m)), ByteMoment<Order::second>(codes(v), exponents(v)));
}
template <class F>
void with_momentum(const View& b, std::int64_t begin, const F& f) {
  check_momentum(b);
  if (b.dtype == DType::f32) return f(PlainMoment{b.as<float>() + begin});
  f(HalfMoment<Order::first>{b.as<bf16>() + begin});
}

}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#endif
