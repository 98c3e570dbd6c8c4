#include "zeepo/train/token_batches.h"

#include <limits>

namespace zeepo {

TokenBatches::TokenBatches(const TrainingData& data, const RunSetup& setup)
    : data_(data),
      setup_(setup),
      micro_batch_{setup.options.micro_batch, setup.options.grad_accum, setup.ranks.ranks},
      seq_len_(setup.options.seq_len),
      samples_(sample_count(data.tokens.tokens(), seq_len_)),
      order_(setup.options.order),
      seed_(setup.options.seed) {}

void TokenBatches::resume(std::int64_t steps, std::int64_t samples) {
  first_step_ = steps;
  first_visit_ = samples;
}

std::int64_t TokenBatches::visited(std::int64_t steps) const {
  return first_visit_ + (steps - first_step_) * micro_batch_.global_batch();
}

TokenBatches::Ids TokenBatches::read(std::int64_t step, std::int64_t micro_step) const {
  Ids batch;
  for (const std::int64_t sample : samples_of(step, {micro_step, setup_.ranks.rank}))
    batch.append(data_, sample, seq_len_);
  return batch;
}

std::vector<std::int64_t> TokenBatches::samples_of(std::int64_t step, const MicroBatchPlace& place) const {
  std::vector<std::int64_t> samples;
  const std::int64_t first = first_visit_ + visit_number(micro_batch_, step - first_step_, place.micro_step, 0,
                                                         setup_.rows_before(place.rank));
  for (std::int64_t row = 0; row < setup_.rows_of(place.rank); ++row) samples.push_back(sample_of(first + row));
  return samples;
}

std::vector<std::int64_t> TokenBatches::samples_of(std::int64_t step) const {
  std::vector<std::int64_t> samples;
  const std::int64_t first = visited(step - 1);
  for (std::int64_t i = 0; i < micro_batch_.global_batch(); ++i) samples.push_back(sample_of(first + i));
  return samples;
}

void TokenBatches::Ids::append(const TrainingData& data, std::int64_t sample, std::int64_t seq_len) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq_len) + 1);
  data.tokens.read(sample * seq_len, tokens);
  ids.insert(ids.end(), tokens.begin(), tokens.end() - 1);
  if (data.mask) {
    const std::vector<bool> counts = data.mask->read(sample * seq_len + 1, seq_len);
    for (std::size_t i = 0; i < counts.size(); ++i)
      if (!counts[i]) tokens[i + 1] = -1;
  }
  targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
}

void TokenBatches::Ids::append_blank(std::int64_t seq_len) {
  ids.insert(ids.end(), static_cast<std::size_t>(seq_len), 0);
  targets.insert(targets.end(), static_cast<std::size_t>(seq_len), -1);
}

std::optional<std::int64_t> TokenBatches::counted_targets(std::int64_t step) const {
  if (!data_.mask) return std::nullopt;
  const std::int64_t first = visited(step - 1);
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < micro_batch_.global_batch(); ++i)
    counted += data_.mask->count(sample_of(first + i) * seq_len_ + 1, seq_len_);
  return counted;
}

float TokenBatches::divisor(std::int64_t counted) const {
  if (counted == 0) return std::numeric_limits<float>::infinity();
  const std::int64_t micro_batches = micro_batch_.grad_accum * micro_batch_.ranks;
  return static_cast<float>(static_cast<double>(counted) / static_cast<double>(micro_batches));
}

std::optional<float> TokenBatches::divisor() const {
  if (setup_.balanced.rows.empty()) return std::nullopt;
  return static_cast<float>(micro_batch_.micro_batch * seq_len_);
}

TokenBatch TokenBatches::Ids::on_device(const Shape& shape, std::optional<float> divisor) const {
  return {Tensor::from<std::int32_t>(ids, shape), Tensor::from<std::int32_t>(targets, shape), divisor};
}

}  // namespace zeepo
