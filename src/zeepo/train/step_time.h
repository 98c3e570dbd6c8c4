// How long a step takes and what bounds it: steps with shapes only, on a clock (device/simulated_time.h).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "zeepo/device/simulated_record.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {

// By resource, which work beside each other.
using BusySeconds = std::array<double, SimulatedTime::kResources>;
// The resource that is busy longest: the work could be no faster.
SimulatedTime::Resource busiest(const BusySeconds& busy_seconds);

struct StepTime {
  double seconds = 0;
  double tokens_per_second = 0;  // of all ranks together
  BusySeconds busy_seconds{};

  SimulatedTime::Resource bound() const { return busiest(busy_seconds); }
};

// Of a step like all but the first. A pure function, as plan_memory().
StepTime predict_step(const RunSetup& setup, const SimulatedRates& rates);

// When each resource works in such a step, of three micro-steps at most, from its begin at 0 on.
struct StepTimeline {
  double seconds = 0;
  std::array<SimulatedRecord::Stretches, SimulatedTime::kResources> busy;  // in order, apart by what a picture shows
};
StepTimeline predict_timeline(const RunSetup& setup, const SimulatedRates& rates);
// What has been recorded between two times, for a picture.
StepTimeline timeline_between(const SimulatedRecord& record, double begin, double end);

}  // namespace zeepo
