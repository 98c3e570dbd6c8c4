// The settings to begin with: what fits with the least to move, as options of `zeepo train` and as DeepSpeed's JSON.
//
// The order is that of docs/tiers.md. A rank alone runs at stage 0. Several run at stage 2, which sends no more than
// stage 0, where everything fits on the device; else at stage 3, with as much offloaded as must be
// (budget/placement_search.h). Where the machine is known, a usual placement that fits and is faster by more than a
// prediction may err is preferred.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "zeepo/plan/exact_plan.h"
#include "zeepo/train/option_table.h"

namespace zeepo {

struct Recommended {
  RunSetup setup;
  RunSetup tuned;               // with the buffers that a run takes of what is free; memory and time are of this
  std::vector<RankRoom> rooms;  // one stands for all ranks where they are alike
  MemoryPlan memory;
  PlaceBytes budgets{};
  bool fits = false;
  std::string ways_out;  // where nothing fits: what would help, each way tried
  std::optional<StepTime> time = {};
};

// `setup` and `room` as exact_plan.h makes them.
// `plans` are those of the same setup, room and machine.
Recommended recommend(const RunSetup& setup, const RankRoom& room, const PlanMachine& machine = {},
                      const std::vector<ExactPlan>& plans = {});

// Of usual plans of the setup the one that is fastest as a run has it, where it fits what may be filled and is faster
// than `least` by more than a prediction may err. Nothing where there is none.
struct FasterPlan {
  std::size_t usual;  // of the plans
  Recommended run;
};
std::optional<FasterPlan> faster_than(const Recommended& least, const RunSetup& setup,
                                      const std::vector<RankRoom>& rooms, const PlanMachine& machine,
                                      const std::vector<ExactPlan>& plans);

// A unit larger than --prefetch is fetched when it is needed, and the compute waits for it. The setup with a --prefetch
// that takes the largest unit.
RunSetup with_units_ahead(const RunSetup& setup);
// The run with that, where its --prefetch is the default, units are fetched, all fits, and it is faster by more than a
// prediction may err. Else nothing.
std::optional<Recommended> fetched_ahead(const Recommended& run, const PlanMachine& machine);

// A setup whose placement is decided, as `zeepo train` plans it with what it tunes. It need not fit.
Recommended as_run(const RunSetup& decided, const std::vector<RankRoom>& rooms, const PlanMachine& machine);

// "mpirun -n 8 zeepo train --model DIR --data FILE ...": `given` are the options that the plan was asked with.
std::string command_of(const Recommended& recommended, const OptionTexts& given);

// As `zeepo train --config` and DeepSpeed read it, and the options for what DeepSpeed has no key for: of the placement,
// and of those that the plan was asked with.
struct DeepSpeedSettings {
  nlohmann::ordered_json json;
  std::string flags_beside;
};
DeepSpeedSettings deepspeed_of(const RunSetup& setup, const OptionTexts& given);

}  // namespace zeepo
