#include "zeepo/train/tuning.h"

#include <array>

namespace zeepo {

Tuning::Tuning(const RunPlan& plan, Engine& engine, RunReport& report) : plan_(plan), engine_(engine), report_(report) {
  if (!plan.setup.levels.any()) return;
  tuner_.emplace(plan.setup.levels);
  engine.set_depths(tuner_->depths());
}

void Tuning::after_step(const StepReport& step) {
  if (!tuner_ || tuner_->settled()) return;
  const Stalls& stalls = step.stalls;
  std::array measured{static_cast<float>(stalls.gather + stalls.host + stalls.nvme), static_cast<float>(step.seconds),
                      static_cast<float>(stalls.host)};
  engine_.sum_over_ranks(measured);
  propose_host_share(stalls.host);
  const Depths before = tuner_->depths();
  if (!tuner_->after_step({measured[0], measured[1], measured[2], step.result.skipped})) return;
  if (tuner_->depths() != before) engine_.set_depths(tuner_->depths());
  report_.tuned(step.step, *tuner_);
}

void Tuning::propose_host_share(double waited_seconds) {
  if (!plan_.step_rates) return;
  const RunSetup& setup = plan_.setup;
  const double elements = static_cast<double>(engine_.parameter_count()) * setup.options.placement.optimizer.host /
                          static_cast<double>(setup.ranks.ranks);
  tuner_->propose_host_share(host_share(*plan_.step_rates, step_work(setup.options), waited_seconds, elements));
}

}  // namespace zeepo
