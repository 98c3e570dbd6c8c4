#include "zeepo/train/step_time.h"

#include <algorithm>

#include "zeepo/train/dry_steps.h"

namespace zeepo {
namespace {

constexpr std::int64_t kSimulated = 3;  // micro-steps: each later one is like the third

double end_of(const SimulatedTime& time) { return std::max(time.now(), time.computed()); }

// What a step of so many micro-steps takes, once the first has been recorded and the second has run ahead of it.
StepTime time_of(const RunSetup& setup, const SimulatedRates& rates, std::int64_t micro_steps) {
  constexpr int kSteps = 2;
  SimulatedTime time(rates);
  DrySteps dry(setup, micro_steps, &time);
  dry.step();
  dry.step();
  const double begin = end_of(time);
  const auto busy_before = time.busy_seconds();
  for (int i = 0; i < kSteps; ++i) dry.step();
  StepTime step;
  step.seconds = (end_of(time) - begin) / kSteps;
  for (std::size_t i = 0; i < step.busy_seconds.size(); ++i)
    step.busy_seconds[i] = (time.busy_seconds()[i] - busy_before[i]) / kSteps;
  return step;
}

// Of a step that has one micro-step fewer. While one resource bounds the step, more micro-steps work in the time that
// the others leave free; where that is used up, the step grows by all of their work.
void add_micro_steps(StepTime& step, const StepTime& fewer, double more) {
  const double each = step.seconds - fewer.seconds;
  double beyond = 0;
  for (std::size_t i = 0; i < step.busy_seconds.size(); ++i) {
    const double work = step.busy_seconds[i] - fewer.busy_seconds[i], free = step.seconds - step.busy_seconds[i];
    beyond = std::max(beyond, more * (work - each) - free);
    step.busy_seconds[i] += more * work;
  }
  step.seconds += more * each + beyond;
}

}  // namespace

SimulatedTime::Resource busiest(const BusySeconds& busy_seconds) {
  return static_cast<SimulatedTime::Resource>(std::ranges::max_element(busy_seconds) - busy_seconds.begin());
}

StepTime predict_step(const RunSetup& setup, const SimulatedRates& rates) {
  const std::int64_t micro_steps = setup.options.grad_accum;
  StepTime step = time_of(setup, rates, std::min(micro_steps, kSimulated));
  if (micro_steps > kSimulated)
    add_micro_steps(step, time_of(setup, rates, kSimulated - 1), static_cast<double>(micro_steps - kSimulated));
  step.tokens_per_second = static_cast<double>(setup.tokens_per_step()) / step.seconds;
  return step;
}

StepTimeline timeline_between(const SimulatedRecord& record, double begin, double end) {
  constexpr double kSeen = 2000;  // parts of the picture that are told apart
  StepTimeline timeline{.seconds = end - begin, .busy = {}};
  for (std::size_t i = 0; i < timeline.busy.size(); ++i) {
    SimulatedRecord::Stretches all = record.of(static_cast<SimulatedTime::Resource>(i));
    std::ranges::sort(all, {}, &SimulatedRecord::Stretch::begin);
    auto& busy = timeline.busy[i];
    for (const SimulatedRecord::Stretch& taken : all) {
      const double from = std::max(taken.begin, begin) - begin, to = std::min(taken.end, end) - begin;
      if (to <= from) continue;
      if (!busy.empty() && from - busy.back().end < timeline.seconds / kSeen)
        busy.back().end = std::max(busy.back().end, to);
      else
        busy.push_back({from, to});
    }
  }
  return timeline;
}

StepTimeline predict_timeline(const RunSetup& setup, const SimulatedRates& rates) {
  const SimulatedRecord record;
  SimulatedTime time(rates);
  DrySteps dry(setup, std::min(setup.options.grad_accum, kSimulated), &time);
  dry.step();
  dry.step();
  const double begin = end_of(time);
  dry.step();
  return timeline_between(record, begin, end_of(time));
}

}  // namespace zeepo
