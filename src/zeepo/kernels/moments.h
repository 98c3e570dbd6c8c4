// A moment of each weight as it is kept between steps: in fp32, in bf16, or in 8 bits with an exponent that a block of
// weights shares.
//
// A narrow one is rounded up or down by chance, in proportion to what lies on either side: what a step adds, often far
// less than the last bit, is kept on average and does not vanish. Chance is a function of the step's key and of the
// weight's place in the model, so that neither the place of the state, nor threads, nor the backend change a bit.
#pragma once

#include <cstdint>

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"
#include "zeepo/device/view.h"

namespace zeepo {

// Weights that share an exponent, and a key of chance. Blocks start at multiples of it in the model.
inline constexpr std::int64_t kMomentBlock = 128;

struct Moment {
  View values;          // fp32, bf16, or uint8
  View exponents = {};  // of uint8 values: uint8, one a block

  Moment() = default;
  Moment(const View& all) : values(all) {}  // NOLINT(google-explicit-constructor): wide moments are just a View
  Moment(const View& codes, const View& shared) : values(codes), exponents(shared) {}
};

// Of one step. Element i of what is stepped is weight `first` + i of the model; `first` is a multiple of kMomentBlock.
struct Chance {
  RngKey key = {};
  std::int64_t first = 0;
};

constexpr RngKey block_key(RngKey key, std::int64_t block) {  // splitmix64
  std::uint64_t x = key.value + (static_cast<std::uint64_t>(block) + 1) * 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return {x ^ (x >> 31)};
}

// The 32 bits of weight i of a block: the first moment takes the lower half, the second the upper one. Two
// multiplications: the step stays as fast as memory, which ten rounds of Philox would not.
constexpr std::uint32_t chance_bits(RngKey block, std::uint32_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(block.value) + i;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x ^= (x >> 15) ^ static_cast<std::uint32_t>(block.value >> 32);
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

// An 8-bit value is a small float with 3 bits of mantissa, on top of the block's exponent E, which is that of the
// largest magnitude, rounded up to 3 bits:
//
//   first moment   sign, 4 bits of exponent   down to 2^(E−14), then evenly spaced, 2^(E−17) apart
//   second moment  5 bits of exponent         down to 2^(E−30), then evenly spaced, 2^(E−33) apart
//
// E is biased as in fp32. As it counts powers of two, a value that is kept is kept exactly, whatever its neighbours do.
// The least second moment that is not zero is kept as the least code at least: its root, 2^(E/2−16.5), is not below the
// first moment's least step, so that no quotient of the two explodes.
inline constexpr int kFirstMomentSpan = 14, kSecondMomentSpan = 30;
// Blocks of smaller numbers are kept as if this were their exponent; larger ones do not occur with finite norms.
inline constexpr std::uint32_t kLeastExponent = 32, kLargestExponent = 254;
// Bits of an fp32 number that its code does not keep, and what rounds a magnitude's bits up so that its exponent is E.
inline constexpr int kCodeShift = 20;
inline constexpr std::uint32_t kRoundUp = (1u << kCodeShift) - 1;

inline void check_moments(const Moment& m, const Moment& v) {
  const bool bytes = m.values.dtype == DType::u8, shared = m.exponents && v.exponents;
  const bool known = bytes || m.values.dtype == DType::f32 || m.values.dtype == DType::bf16;
  if (known && v.values.dtype == m.values.dtype && bytes == shared) return;
  throw Error("moments in {} and {}, {} exponents: must be both fp32, bf16, or uint8 with exponents",
              name_of(m.values.dtype), name_of(v.values.dtype), shared ? "with" : "without");
}
inline void check_momentum(const View& b) {
  if (b.dtype == DType::f32 || b.dtype == DType::bf16) return;
  throw Error("momentum in {}: must be fp32 or bf16", name_of(b.dtype));
}

}  // namespace zeepo
