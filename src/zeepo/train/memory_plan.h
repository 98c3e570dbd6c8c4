// What a run needs of each tier: found by two whole steps with shapes only, through the same model, tape and engine.
#pragma once

#include "zeepo/budget/memory_plan.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {

// A pure function: no memory of the size of a batch or of a state is taken, nothing is sent, no other rank is asked.
MemoryPlan plan_memory(const RunSetup& setup);

}  // namespace zeepo
