#include "zeepo/train/measured.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace zeepo {

Measured median(std::span<const Measured> steps) {
  const auto middle = [&](double Measured::*of) {
    std::vector<double> values;
    for (const Measured& step : steps) values.push_back(step.*of);
    std::ranges::sort(values);
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  };
  if (steps.empty()) return {};
  return {middle(&Measured::stalled_seconds), middle(&Measured::seconds), middle(&Measured::host_seconds)};
}

void StepMeter::add(const Measured& step, bool skipped) {
  const bool after_skip = std::exchange(skipped_, skipped);
  if (skipped || after_skip) return;
  sum_.stalled_seconds += step.stalled_seconds;
  sum_.seconds += step.seconds;
  sum_.host_seconds += step.host_seconds;
  ++steps_;
}

Measured StepMeter::take() {
  const Measured sum = std::exchange(sum_, {});
  const double steps = std::exchange(steps_, 0);
  return {sum.stalled_seconds / steps, sum.seconds / steps, sum.host_seconds / steps};
}

}  // namespace zeepo
