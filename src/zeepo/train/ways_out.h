// What would help when --placement auto finds nothing that fits. Each way out has been tried as it is printed: with
// these options, in the budgets that follow from them, the search finds a placement.
#pragma once

#include <string>
#include <vector>

#include "zeepo/train/planning.h"

namespace zeepo {

// `failed` is what the search in least_to_fill(rooms) came to.
std::string ways_out(const RunSetup& setup, const std::vector<RankRoom>& rooms, const FoundPlacement& failed);

}  // namespace zeepo
