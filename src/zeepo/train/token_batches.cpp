#include "zeepo/train/token_batches.h"

namespace zeepo {

TokenBatches::TokenBatches(const TokenFile& data, const RunSetup& setup)
    : data_(data),
      micro_batch_{setup.options.micro_batch, setup.options.grad_accum, setup.ranks.ranks},
      seq_len_(setup.options.seq_len),
      samples_(sample_count(data.tokens(), seq_len_)),
      rank_(setup.ranks.rank),
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
  std::vector<std::int32_t> sample(static_cast<std::size_t>(seq_len_) + 1);
  Ids batch;
  for (std::int64_t row = 0; row < micro_batch_.micro_batch; ++row) {
    const std::int64_t visit = first_visit_ + visit_number(micro_batch_, step - first_step_, micro_step, rank_, row);
    data_.read(sample_index(visit, samples_, order_, seed_) * seq_len_, sample);
    batch.ids.insert(batch.ids.end(), sample.begin(), sample.end() - 1);
    batch.targets.insert(batch.targets.end(), sample.begin() + 1, sample.end());
  }
  return batch;
}

TokenBatch TokenBatches::Ids::on_device(const Shape& shape) const {
  return {Tensor::from<std::int32_t>(ids, shape), Tensor::from<std::int32_t>(targets, shape)};
}

}  // namespace zeepo
