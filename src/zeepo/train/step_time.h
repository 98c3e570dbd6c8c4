// How long a step takes and what bounds it: steps with shapes only, on a clock (device/simulated_time.h).
#pragma once

#include <array>
#include <string>

#include "zeepo/device/simulated_time.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {

struct StepTime {
  double seconds = 0;
  double tokens_per_second = 0;                                  // of all ranks together
  std::array<double, SimulatedTime::kResources> busy_seconds{};  // by resource; they work beside each other

  // The resource that is busy longest; it could be no faster than that.
  SimulatedTime::Resource bound() const;
};

// Of a step like all but the first. A pure function, as plan_memory().
StepTime predict_step(const RunSetup& setup, const SimulatedRates& rates);

}  // namespace zeepo
