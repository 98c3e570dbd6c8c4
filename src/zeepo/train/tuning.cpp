#include "zeepo/train/tuning.h"
#include "zeepo/zero/rank_talk.h"

#include <array>

namespace zeepo {

Tuning::Tuning(const RunPlan& plan, ModelEngine& engine, RunReport& report)
    : plan_(plan), engine_(engine), report_(report) {
  if (!plan.setup.levels.any()) return;
  tuner_.emplace(plan.setup.levels);
  engine.set_depths(tuner_->depths());
}

void Tuning::start_at(const Depths& depths) {
  if (!tuner_) return;
  tuner_->start_at(depths);
  engine_.set_depths(tuner_->depths());
}

void Tuning::after_step(const StepReport& step) {
  if (!tuner_) return;
  const Stalls& stalls = step.stalls;
  meter_.add({stalls.gather + stalls.host + stalls.nvme, step.seconds, stalls.host}, step.result.skipped);
  if (meter_.steps() < tuner_->steps_to_measure()) return;
  const Measured own = meter_.take();
  propose_host_share(own.host_seconds);
  const Depths before = tuner_->depths();
  if (!tuner_->after(over_all_ranks(own))) return;
  if (tuner_->depths() != before) engine_.set_depths(tuner_->depths());
  report_.tuned(step.step, *tuner_);
}

Depths Tuning::depths() const {
  if (tuner_) return tuner_->depths();
  const EngineOptions& options = engine_.plan().options;
  return {options.prefetch_bytes, options.pieces_under_way, options.host_share};
}

Measured Tuning::over_all_ranks(const Measured& own) {
  if (plan_.setup.ranks.ranks == 1) return own;
  std::array numbers{static_cast<float>(own.stalled_seconds), static_cast<float>(own.seconds),
                     static_cast<float>(own.host_seconds)};
  sum_over_ranks(engine_.collectives(), numbers);
  return {numbers[0], numbers[1], numbers[2]};
}

void Tuning::propose_host_share(double waited_seconds) {
  if (!plan_.step_rates) return;
  const RunSetup& setup = plan_.setup;
  const double elements = static_cast<double>(parameter_count(engine_.units())) *
                          setup.options.placement.optimizer.host / static_cast<double>(setup.ranks.ranks);
  tuner_->propose_host_share(host_share(*plan_.step_rates, step_work(setup.options), waited_seconds, elements));
}

}  // namespace zeepo
