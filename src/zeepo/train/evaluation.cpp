#include "zeepo/train/evaluation.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/stop_request.h"
#include "zeepo/zero/rank_talk.h"

namespace zeepo {
namespace {

constexpr std::int64_t kRoundsAtOnce = 64;  // passes of each rank between two exchanges of their losses

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Evaluation::Evaluation(const TrainingData& data, const RunSetup& setup) : data_(data), setup_(setup) {
  const TrainOptions& options = setup.options;
  samples_ = sample_count(data.tokens.tokens(), options.seq_len);
  if (options.eval_samples > 0) samples_ = std::min(samples_, options.eval_samples);
  batches_ = divided_up(samples_, options.micro_batch);
  counted_ = data.mask ? data.mask->count(1, samples_ * options.seq_len) : samples_ * options.seq_len;
  if (counted_ == 0)
    throw Error("--eval-data {}: none of the tokens of its first {} samples counts in the loss; raise --eval-samples",
                options.eval_data.string(), samples_);
}

// A rank without a micro-batch takes part all the same: gathering weights needs every rank.
float Evaluation::pass(ModelEngine& engine, std::int64_t batch) const {
  const TrainOptions& options = setup_.options;
  TokenBatches::Ids ids;
  for (std::int64_t row = 0; row < options.micro_batch; ++row) {
    const std::int64_t sample = batch * options.micro_batch + row;
    sample < samples_ ? ids.append(data_, sample, options.seq_len) : ids.append_blank(options.seq_len);
  }
  return run_eval_pass(engine, setup_, [&] { return ids.on_device({options.micro_batch, options.seq_len}); });
}

Evaluation::Result Evaluation::run(ModelEngine& engine) const {
  const auto start = std::chrono::steady_clock::now();
  const std::int64_t ranks = setup_.ranks.ranks, rank = setup_.ranks.rank, rounds = divided_up(batches_, ranks);
  double sum = 0;
  for (std::int64_t first = 0; first < rounds; first += kRoundsAtOnce) {
    const std::int64_t count = std::min(kRoundsAtOnce, rounds - first);
    // The losses by micro-batch, then each rank's signal. Others' places are 0, which changes no bit of a sum.
    std::vector<float> told(static_cast<std::size_t>((count + 1) * ranks));
    for (std::int64_t i = 0; i < count; ++i)
      told[static_cast<std::size_t>(i * ranks + rank)] = pass(engine, (first + i) * ranks + rank);
    told[static_cast<std::size_t>(count * ranks + rank)] = static_cast<float>(StopRequest::signal());
    if (ranks > 1) sum_over_ranks(engine.collectives(), told);
    for (std::int64_t i = 0; i < count * ranks; ++i) sum += told[static_cast<std::size_t>(i)];
    const float signal = *std::ranges::max_element(told.end() - ranks, told.end());
    if (signal > 0) return {.signal = static_cast<int>(signal)};
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return {.loss = sum / static_cast<double>(counted_), .tokens = counted_, .seconds = elapsed.count()};
}

}  // namespace zeepo
