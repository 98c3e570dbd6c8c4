// Which tokens a rank reads at which step: pure functions, so that a run can resume anywhere and any rank can ask.
//
// Sample k is tokens [k·S, k·S+S]: inputs the first S of them, targets the last S. An epoch visits each sample once.
#pragma once

#include <cstdint>

namespace zeepo {

// ⌊(tokens−1)/S⌋. Throws Error when that is zero.
std::int64_t sample_count(std::int64_t tokens, std::int64_t seq_len);

struct BatchShape {
  std::int64_t micro_batch = 1;
  std::int64_t grad_accum = 1;
  std::int64_t ranks = 1;

  std::int64_t global_batch() const { return micro_batch * grad_accum * ranks; }
};

// How many samples the run has visited before this row: step from 1, the others from 0.
std::int64_t visit_number(const BatchShape& shape, std::int64_t step, std::int64_t micro_step, std::int64_t rank,
                          std::int64_t row);

enum class Order { as_is, shuffled };
// The sample of a visit. Shuffled: each epoch in its own order, given by the seed.
std::int64_t sample_index(std::int64_t visit, std::int64_t count, Order order, std::uint64_t seed);

}  // namespace zeepo
