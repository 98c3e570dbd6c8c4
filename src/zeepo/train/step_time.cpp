#include "zeepo/train/step_time.h"

#include <algorithm>

#include "zeepo/train/dry_steps.h"

namespace zeepo {
namespace {

// What a step of so many micro-steps takes, once the first has been recorded and the second has run ahead of it.
StepTime time_of(const RunSetup& setup, const SimulatedRates& rates, std::int64_t micro_steps) {
  constexpr int kSteps = 2;
  SimulatedTime time(rates);
  DrySteps dry(setup, micro_steps, &time);
  dry.step();
  dry.step();
  const double begin = std::max(time.now(), time.computed());
  const auto busy_before = time.busy_seconds();
  for (int i = 0; i < kSteps; ++i) dry.step();
  StepTime step;
  step.seconds = (std::max(time.now(), time.computed()) - begin) / kSteps;
  for (std::size_t i = 0; i < step.busy_seconds.size(); ++i)
    step.busy_seconds[i] = (time.busy_seconds()[i] - busy_before[i]) / kSteps;
  return step;
}

}  // namespace

SimulatedTime::Resource StepTime::bound() const {
  const auto most = std::ranges::max_element(busy_seconds) - busy_seconds.begin();
  return static_cast<SimulatedTime::Resource>(most);
}

StepTime predict_step(const RunSetup& setup, const SimulatedRates& rates) {
  constexpr std::int64_t kSimulated = 3;  // each later micro-step is like the third
  const std::int64_t micro_steps = setup.options.grad_accum;
  StepTime step = time_of(setup, rates, std::min(micro_steps, kSimulated));
  if (micro_steps > kSimulated) {
    const StepTime fewer = time_of(setup, rates, kSimulated - 1);
    const auto more = static_cast<double>(micro_steps - kSimulated);
    step.seconds += more * (step.seconds - fewer.seconds);
    for (std::size_t i = 0; i < step.busy_seconds.size(); ++i)
      step.busy_seconds[i] += more * (step.busy_seconds[i] - fewer.busy_seconds[i]);
  }
  step.tokens_per_second = static_cast<double>(setup.tokens_per_step()) / step.seconds;
  return step;
}

}  // namespace zeepo
