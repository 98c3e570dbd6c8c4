// The micro-batches of one rank: a pure function of step, micro-step and rank, read from the token file.
//
// Where only some targets count, the loss of a step is the mean over those of its global batch. Every rank can say how
// many these are, for the sampler and the mask are the same everywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "zeepo/train/micro_step.h"
#include "zeepo/train/training_data.h"

namespace zeepo {

class TokenBatches {
 public:
  // Borrows both.
  TokenBatches(const TrainingData& data, const RunSetup& setup);
  // Goes on behind `samples` visits that the first `steps` steps have made, perhaps with other batches.
  void resume(std::int64_t steps, std::int64_t samples);
  std::int64_t visited(std::int64_t steps) const;  // samples, by the first `steps` steps

  struct Ids {
    std::vector<std::int32_t> ids, targets;
    // Adds sample number `sample`, of `seq_len` tokens; or one of which no target counts.
    void append(const TrainingData& data, std::int64_t sample, std::int64_t seq_len);
    void append_blank(std::int64_t seq_len);
    TokenBatch on_device(const Shape& shape, std::optional<float> divisor = std::nullopt) const;
  };
  // `step` counts from 1, `micro_step` from 0.
  Ids read(std::int64_t step, std::int64_t micro_step) const;
  // The samples of a micro-batch, on any rank; or of the step's global batch, in order.
  std::vector<std::int64_t> samples_of(std::int64_t step) const;
  std::vector<std::int64_t> samples_of(std::int64_t step, const MicroBatchPlace& place) const;
  // The targets that count in the step's global batch; nothing where all of them do.
  std::optional<std::int64_t> counted_targets(std::int64_t step) const;
  // What the sum of the losses of each micro-batch is divided by, so that the mean over the micro-batches is the mean
  // over `counted` targets: their number in a micro-batch on average. Without any, infinite: loss and gradients are 0.
  float divisor(std::int64_t counted) const;
  // The same where all targets count: nothing where every rank has as many rows.
  std::optional<float> divisor() const;
  Shape shape() const { return {setup_.rows_of(setup_.ranks.rank), seq_len_}; }
  std::int64_t samples() const { return samples_; }

 private:
  std::int64_t sample_of(std::int64_t visit) const { return sample_index(visit, samples_, order_, seed_); }

  const TrainingData& data_;
  const RunSetup& setup_;
  BatchShape micro_batch_;
  std::int64_t seq_len_, samples_;
  std::int64_t first_step_ = 0, first_visit_ = 0;
  Order order_;
  std::uint64_t seed_;
};

}  // namespace zeepo
