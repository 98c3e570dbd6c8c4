#include "zeepo/train/training_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/model_directory.h"

namespace zeepo {
namespace {

// Reading a weight is a collective: the ranks that do not write make the same reads as the one that does.
void join_reads(const std::vector<WeightShard>& shards, const TensorReader& read) {
  std::vector<float> piece;
  for (const auto& shard : shards)
    for (const auto& [name, shape] : shard.tensors) {
      const std::int64_t elements = elements_of(name, shape);
      for (std::int64_t begin = 0; begin < elements; begin += kWritePieceElements) {
        piece.resize(static_cast<std::size_t>(std::min(elements - begin, kWritePieceElements)));
        read(name, begin, piece);
      }
    }
}

}  // namespace

TrainingRun::TrainingRun(const RunPlan& plan, const TokenBatches& batches, Session& session, RunReport& report,
                         Timeline* timeline)
    : plan_(plan),
      options_(plan.setup.options),
      batches_(batches),
      session_(session),
      report_(report),
      timeline_(timeline),
      engine_(*plan.setup.model, session.communicator(), engine_options(plan.setup)) {}

void TrainingRun::load(const WeightFiles* files) {
  engine_.load(files ? stored_weights(plan_.setup.config, engine_.slices(), *files)
                     : random_weights(options_.seed, session_.pool()));
  session_.restart_peaks();
  report_.tiers(session_);
}

void TrainingRun::train() {
  Tuning tuning(plan_, engine_, report_);
  StepReport last{};
  MovedBytes moved, late;  // of the last step, and before what is left of its update
  report_.begin_steps(options_.steps);
  for (std::int64_t number = 1; number <= options_.steps; ++number) {
    const MovedBytes before = engine_.moved().in_time;
    if (timeline_) timeline_->begin_step(number);
    const std::string name = timeline_ ? fmt::format("{}", number) : "";
    {
      const Span span(timeline_, TimelineRow::steps, "step", {name});
      last = step(number);
    }
    moved = engine_.moved().in_time - before;
    late = engine_.moved().late;
    report_.step(last);
    tuning.after_step(last);
  }
  report_.end_steps();
  if (!std::isfinite(last.result.loss))  // fp16 has skipped it
    throw Error(
        "train: the loss of the last step, {}, is {}: the weights overflow in fp16{}. Lower --lr, or use --dtype bf16",
        options_.steps, last.result.loss, options_.output.empty() ? "" : "; nothing is written to --output");
  engine_.settle();
  report_.summary(engine_, session_, last, moved + (engine_.moved().late - late));
}

StepReport TrainingRun::step(std::int64_t number) {
  const auto start = std::chrono::steady_clock::now();
  const Stalls stalled = engine_.stalls();
  const double lr = learning_rate(options_.schedule, number, options_.steps);
  engine_.expect_rate(lr);
  for (std::int64_t m = 0; m < options_.grad_accum; ++m) {
    const TokenBatches::Ids ids = batches_.read(number, m);
    run_micro_step(engine_, plan_.setup, number, m, [&] { return ids.on_device(batches_.shape()); });
  }
  const StepResult result = engine_.step(lr);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  const std::int64_t tokens = plan_.setup.tokens_per_step();
  const double rate = static_cast<double>(tokens) / elapsed.count();
  const double flops_a_token = 6 * static_cast<double>(parameter_count(engine_.units()));
  return {number, tokens, result, lr, elapsed.count(), rate, flops_a_token * rate / 1e12, engine_.stalls() - stalled};
}

void TrainingRun::save(const std::vector<ModelTensor>& tensors) {
  const auto read = [&](const std::string& name, std::int64_t begin, std::span<float> out) {
    engine_.read(name, begin, out);
  };
  const ModelDirectoryOptions output{.dtype = options_.output_dtype.value_or(options_.dtype)};
  if (plan_.setup.ranks.rank != 0) return join_reads(cut_into_shards(tensors, output.dtype, output.shard_bytes), read);
  write_model_directory(options_.model, options_.output, tensors, read, output);
  report_.saved(options_.output);
}

}  // namespace zeepo
