// The plan of a run: what lives where, how much memory that takes, and how far transfers may come to run ahead.
//
// Pure functions of a setup and of what the ranks' machines have: nothing is sent, no other rank is asked, no data is
// read. So any rank of any number can be planned for, and every rank of a run comes to the same.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "zeepo/budget/budgets.h"
#include "zeepo/train/memory_plan.h"
#include "zeepo/train/run_setup.h"
#include "zeepo/train/step_probe.h"

namespace zeepo {

struct RunPlan {
  RunSetup setup;     // with the placement in force and the levels that are planned for
  MemoryPlan memory;  // of all of them
  PlaceBytes needed;  // so that the plan fits on every rank: as `memory`, or more of another rank's
  PlaceBytes budgets;
  std::optional<StepRates> step_rates;  // where the host's part of the step is tuned
};

// Measures how fast this machine steps offloaded optimizer state. Asked once, before the run's memory is taken.
using MeasureSteps = std::function<StepRates(const RunSetup&)>;

// The setup with the placement that the budgets of all ranks allow, where choices are open (--placement auto), and with
// buffers as large as they allow. Throws Error when no placement fits, with ways out that have been tried. `rooms` are
// those of all ranks.
RunSetup choose_placement(const RunSetup& setup, const std::vector<RankRoom>& rooms);

// The setup with more host memory for snapshots, where no option says how much: half of what is free on every rank, so
// that steps need not wait for the disk.
RunSetup give_snapshots_room(const RunSetup& setup, const std::vector<RankRoom>& rooms);

// The setup of the rank for which is decided what all ranks must decide alike: no rank has more rows, or more memory
// for messages. Shares are alike. Where budgets are compared, room for fewer rows is planned, too.
RunSetup as_largest(const RunSetup& setup);

// The plan of the setup's rank, with its placement. It need not fit: see check_fits. Without `measure` the host's part
// of the step has buffers, and one level.
RunPlan plan_run(const RunSetup& setup, const std::vector<RankRoom>& rooms, const MeasureSteps& measure = {});

// Throws Error where the plan does not fit.
void check_fits(const RunPlan& plan, const GpuPlace& place);

// What host memory buffers may be sized for within a budget, the most first: these shrink only where a step would not
// fit.
std::vector<std::int64_t> host_rooms(std::int64_t host_bytes);

// What --placement auto finds within the budgets.
struct FoundPlacement {
  RunSetup setup;    // with the arrangement; where nothing fits, with the one that needs least of the device
  PlaceBytes bytes;  // that it needs
  bool fits;
};
FoundPlacement search_placement(const RunSetup& setup, const PlaceBytes& budgets);
// The same with buffers for so much host memory.
FoundPlacement search_placement(const RunSetup& setup, const PlaceBytes& budgets, std::int64_t host_room);

}  // namespace zeepo
