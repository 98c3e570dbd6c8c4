// What `zeepo train --placement auto` runs: what a plan of the same stage and budgets recommends.
#pragma once

#include "zeepo/plan/plan_machine.h"
#include "zeepo/train/placement_choice.h"

namespace zeepo {

// As ChoosePlacement. Rank 0 decides for all, by what `zeepo probe` has kept of its machine for so many ranks; where
// that is nothing, by bytes.
PlacementChoice placement_by_probe(const RunSetup& setup, const std::vector<RankRoom>& rooms, Communicator& ranks);
// The same for a machine that rank 0 knows.
PlacementChoice placement_on(const PlanMachine& machine, const RunSetup& setup, const std::vector<RankRoom>& rooms,
                             Communicator& ranks);

}  // namespace zeepo
