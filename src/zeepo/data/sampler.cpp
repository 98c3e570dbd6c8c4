#include "zeepo/data/sampler.h"

#include <algorithm>
#include <bit>

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"

namespace zeepo {
namespace {

// A Feistel network permutes [0, 2^(2·half_bits)); walking on until the value is below count leaves a permutation of
// [0, count), in fewer than four walks on average, without a table.
std::uint64_t permute(std::uint64_t value, std::uint64_t count, RngKey key) {
  constexpr int kRounds = 6;
  const int half_bits = std::max(1, (static_cast<int>(std::bit_width(count - 1)) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  do {
    std::uint64_t left = value >> half_bits, right = value & mask;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const auto bits = philox(mix(key, round), right);
      const std::uint64_t next = left ^ ((std::uint64_t{bits[1]} << 32 | bits[0]) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits | right;
  } while (value >= count);
  return value;
}

}  // namespace

std::int64_t sample_count(std::int64_t tokens, std::int64_t seq_len) {
  if (seq_len < 1) throw Error("train: --seq-len {}: must be at least 1", seq_len);
  const std::int64_t count = (tokens - 1) / seq_len;
  if (count < 1)
    throw Error("train: the data has {} tokens, one sample of --seq-len {} needs {}; give more data or a shorter one",
                tokens, seq_len, seq_len + 1);
  return count;
}

std::int64_t visit_number(const BatchShape& shape, std::int64_t step, std::int64_t micro_step, std::int64_t rank,
                          std::int64_t row) {
  return (step - 1) * shape.global_batch() + (micro_step * shape.ranks + rank) * shape.micro_batch + row;
}

std::int64_t sample_index(std::int64_t visit, std::int64_t count, Order order, std::uint64_t seed) {
  const std::int64_t place = visit % count;
  if (order == Order::as_is) return place;
  const RngKey key = mix(mix(RngKey{seed}, "sample order"), static_cast<std::uint64_t>(visit / count));
  return static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(place), static_cast<std::uint64_t>(count), key));
}

}  // namespace zeepo
