// What a run needs of each tier: found by two whole steps with shapes only, through the same model, tape and engine.
#pragma once

#include <array>

#include "zeepo/train/run_setup.h"
#include "zeepo/zero/session.h"

namespace zeepo {

struct MemoryPlan {
  std::array<Usage, kPlaces.size()> peak;
  PlaceBytes bytes;  // gaps included

  bool fits(const PlaceBytes& budgets) const;
};

// A pure function: no memory of the size of a batch or of a state is taken, nothing is sent, no other rank is asked.
MemoryPlan plan_memory(const RunSetup& setup);

}  // namespace zeepo
