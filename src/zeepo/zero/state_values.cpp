#include "zeepo/zero/state_values.h"

#include <algorithm>

#include "zeepo/base/dtype.h"

namespace zeepo {

namespace {

template <class T>
void widen(const View& from, std::int64_t begin, std::span<float> to) {
  const T* values = from.as<T>() + begin;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = to_float(values[i]);
}

void widen(const View& from, std::int64_t begin, std::span<float> to) {
  switch (from.dtype) {
    case DType::bf16: return widen<bf16>(from, begin, to);
    case DType::f16: return widen<f16>(from, begin, to);
    default: return widen<float>(from, begin, to);
  }
}

}  // namespace

void load_weights(const View& param, const View& remainder, std::int64_t begin, std::span<float> to) {
  if (!remainder) return widen(param, begin, to);
  if (remainder.dtype == DType::f32) return widen(remainder, begin, to);
  const bf16* high = param.as<bf16>() + begin;
  const std::int16_t* rest = remainder.as<std::int16_t>() + begin;
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = std::bit_cast<float>((std::uint32_t{high[i].bits} << 16) + static_cast<std::uint32_t>(rest[i]));
}

void load_moment(MomentOrder order, const Moment& from, std::int64_t begin, std::span<float> to) {
  if (from.values.dtype != DType::u8) return widen(from.values, begin, to);
  const std::uint8_t* codes = from.values.as<std::uint8_t>() + begin;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const auto block = (static_cast<std::size_t>(begin) + i) / kMomentBlock;
    to[i] = decode_moment(order, codes[i], from.exponents.as<std::uint8_t>()[block]);
  }
}

void store_moment(MomentOrder order, std::span<const float> from, const Moment& to) {
  const View& values = to.values;
  if (values.dtype == DType::f32) {
    std::ranges::copy(from, values.as<float>());
  } else if (values.dtype == DType::bf16) {
    for (std::size_t i = 0; i < from.size(); ++i) values.as<bf16>()[i] = from_float<bf16>(from[i]);
  } else {
    const std::span codes(values.as<std::uint8_t>(), from.size());
    for (std::size_t begin = 0; begin < from.size(); begin += kMomentBlock) {
      const std::size_t count = std::min<std::size_t>(kMomentBlock, from.size() - begin);
      to.exponents.as<std::uint8_t>()[begin / kMomentBlock] =
          encode_moments(order, from.subspan(begin, count), codes.subspan(begin, count));
    }
  }
}

}  // namespace zeepo
