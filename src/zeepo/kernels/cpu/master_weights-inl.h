// The exact fp32 weights of a flat range in their three forms, as vectors. Per Highway target, like float_lanes-inl.h.
#if defined(ZEEPO_KERNELS_CPU_MASTER_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ZEEPO_KERNELS_CPU_MASTER_WEIGHTS_INL_H_
#undef ZEEPO_KERNELS_CPU_MASTER_WEIGHTS_INL_H_
#else
#define ZEEPO_KERNELS_CPU_MASTER_WEIGHTS_INL_H_
#endif

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/float_lanes-inl.h"
#include "zeepo/kernels/optimizer.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {

struct PlainWeights {
  float* param;

  template <class Count>
  HWY_INLINE Floats get(std::int64_t i, Count count) const {
    return load(param + i, count);
  }
  template <class Count>
  HWY_INLINE void put(Floats x, std::int64_t i, Count count) const {
    store(x, param + i, count);
  }
};

struct MasterWeights {  // fp16 beside an fp32 master
  f16* param;
  float* master;

  template <class Count>
  HWY_INLINE Floats get(std::int64_t i, Count count) const {
    return load(master + i, count);
  }
  template <class Count>
  HWY_INLINE void put(Floats x, std::int64_t i, Count count) const {
    store(x, master + i, count);
    store(x, param + i, count);
  }
};

// bf16 with an int16 remainder. param = (bits + 0x8000) >> 16 and low = bits − (param << 16), modulo 2^32: the low half
// of the bits is the remainder as it stands, and adding it back, sign extended, undoes the carry.
struct SplitWeights {
  std::uint16_t *param, *low;

  HWY_INLINE Floats get(std::int64_t i, Whole) const {
    const hn::RebindToSigned<FloatTag> integers;
    const hn::Rebind<std::int16_t, FloatTag> short_integers;
    const auto high = hn::ShiftLeft<16>(hn::PromoteTo(WordTag(), hn::LoadU(HalfWordTag(), param + i)));
    const auto rest = hn::PromoteTo(integers, hn::BitCast(short_integers, hn::LoadU(HalfWordTag(), low + i)));
    return hn::BitCast(FloatTag(), hn::Add(high, hn::BitCast(WordTag(), rest)));
  }
  HWY_INLINE void put(Floats x, std::int64_t i, Whole) const {
    const auto bits = hn::BitCast(WordTag(), x);
    const auto high = hn::ShiftRight<16>(hn::Add(bits, hn::Set(WordTag(), 0x8000)));
    hn::StoreU(hn::TruncateTo(HalfWordTag(), high), HalfWordTag(), param + i);
    hn::StoreU(hn::TruncateTo(HalfWordTag(), bits), HalfWordTag(), low + i);
  }
  HWY_INLINE Floats get(std::int64_t i, Part part) const {
    HWY_ALIGN std::uint16_t highs[hn::MaxLanes(FloatTag())] = {}, lows[hn::MaxLanes(FloatTag())] = {};
    std::memcpy(highs, param + i, part.count * sizeof(std::uint16_t));
    std::memcpy(lows, low + i, part.count * sizeof(std::uint16_t));
    return SplitWeights{highs, lows}.get(0, Whole{});
  }
  HWY_INLINE void put(Floats x, std::int64_t i, Part part) const {
    HWY_ALIGN std::uint16_t highs[hn::MaxLanes(FloatTag())], lows[hn::MaxLanes(FloatTag())];
    SplitWeights{highs, lows}.put(x, 0, Whole{});
    std::memcpy(param + i, highs, part.count * sizeof(std::uint16_t));
    std::memcpy(low + i, lows, part.count * sizeof(std::uint16_t));
  }
};

// Calls f with the form that the dtypes say, or throws Error.
template <class F>
void with_weights(const Weights& weights, std::int64_t begin, const F& f) {
  const auto& [param, low] = weights;
  if (param.dtype == DType::f32 && !low) return f(PlainWeights{param.as<float>() + begin});
  if (param.dtype == DType::f16 && low && low.dtype == DType::f32)
    return f(MasterWeights{param.as<f16>() + begin, low.as<float>() + begin});
  if (param.dtype == DType::bf16 && low && low.dtype == DType::i16)
    return f(SplitWeights{param.as<std::uint16_t>() + begin, low.as<std::uint16_t>() + begin});
  throw Error("weights in {} with {}{}: must be fp32 alone, bf16 with int16 or fp16 with fp32", name_of(param.dtype),
              low ? "" : "no ", low ? name_of(low.dtype) : "remainder");
}

}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#endif
