// What the states of a module need of each tier, found by steps of a dry engine; and what is decided by that.
#pragma once

#include "zeepo/budget/absent_ranks.h"
#include "zeepo/budget/budgets.h"
#include "zeepo/train/options.h"
#include "zeepo/zero/unit.h"

namespace zeepo {

// Every unit gets a visit of its own, in place of those it has.
UnitPlan with_own_visits(UnitPlan units);

// All that zeepo holds; what PyTorch computes is PyTorch's own.
MemoryPlan plan_torch_memory(const UnitPlan& units, const EngineOptions& options, const RankShape& ranks,
                             const LowerTiers::Options& lower, Backend backend);

// A run that fits in these budgets: with a placement of its own where options.choose says so, and on a GPU with as many
// buffers for the optimizer's state as the rest of the device's budget has room for. Without memory= both keep to a
// third of the GPU, since what PyTorch needs is not known before. Throws Error when nothing fits.
struct TorchRun {
  TrainOptions options;
  EngineOptions engine;
  MemoryPlan memory;
};
TorchRun plan_torch_run(const UnitPlan& units, const TrainOptions& options, const EngineOptions& engine,
                        const RankShape& ranks, const PlaceBytes& budgets);

// The least of any rank: by memory=, else what there is.
PlaceBytes torch_budgets(const TrainOptions& options, Communicator& ranks, const GpuPlace& place);

}  // namespace zeepo
