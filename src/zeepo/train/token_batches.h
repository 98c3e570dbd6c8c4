// The micro-batches of one rank: a pure function of step, micro-step and rank, read from the token file.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "zeepo/data/token_data.h"
#include "zeepo/train/micro_step.h"

namespace zeepo {

class TokenBatches {
 public:
  // Borrows the data.
  TokenBatches(const TokenFile& data, const RunSetup& setup);
  // Goes on behind `samples` visits that the first `steps` steps have made, perhaps with other batches.
  void resume(std::int64_t steps, std::int64_t samples);
  std::int64_t visited(std::int64_t steps) const;  // samples, by the first `steps` steps

  struct Ids {
    std::vector<std::int32_t> ids, targets;
    TokenBatch on_device(const Shape& shape) const;
  };
  // `step` counts from 1, `micro_step` from 0.
  Ids read(std::int64_t step, std::int64_t micro_step) const;
  Shape shape() const { return {micro_batch_.micro_batch, seq_len_}; }
  std::int64_t samples() const { return samples_; }

 private:
  const TokenFile& data_;
  BatchShape micro_batch_;
  std::int64_t seq_len_, samples_;
  std::int64_t first_step_ = 0, first_visit_ = 0;
  int rank_;
  Order order_;
  std::uint64_t seed_;
};

}  // namespace zeepo
