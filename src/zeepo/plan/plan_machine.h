// The machine that a plan is for: described, or probed before on this one.
#pragma once

#include <optional>
#include <string>

#include "zeepo/plan/hardware.h"
#include "zeepo/probe/machine_rates.h"
#include "zeepo/train/options.h"
#include "zeepo/train/step_time.h"

namespace zeepo {

struct PlanMachine {
  std::string source;                   // "zeepo probe of 2026-11-16", "DGX-2, 16 V100"; or why there are no rates
  std::optional<SimulatedRates> rates;  // none: no times
  double both_ways = 0;                 // bytes over the link each way, both ways at once; 0: as each alone
  bool has_files = true;                // false: described without a disk
  std::string date = {};                // of the probe
};

SimulatedRates simulated_rates(const MachineRates& rates);
// No faster than --simulate-link makes them.
SimulatedRates throttled(SimulatedRates rates, const TrainOptions& options);

// What `zeepo probe` has kept of this machine, for so many ranks. Where it ran with other threads a rank than the run,
// `source` says so; 0: not known.
PlanMachine probed_machine(Backend backend, int ranks, int threads_of_run);
PlanMachine described_machine(const Hardware& hardware);

// The same budgets, but none of files on a machine without a disk.
PlaceBytes budgets_on(const PlanMachine& machine, PlaceBytes budgets);
// What is missing of each tier; 0 where there is room.
PlaceBytes missing_of(const PlaceBytes& bytes, const PlaceBytes& budgets);

// Of a machine that has them, as this run meets them.
SimulatedRates rates_of(const RunSetup& setup, const PlanMachine& machine);
// Nothing where there are no rates, or none of the files that it needs.
std::optional<StepTime> step_time(const RunSetup& setup, const PlanMachine& machine);

}  // namespace zeepo
