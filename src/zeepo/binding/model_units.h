// The units of a model made of Modules.
#pragma once

#include <cstdint>
#include <vector>

#include "zeepo/nn/module.h"
#include "zeepo/zero/unit.h"

namespace zeepo {

struct ModelUnits : UnitPlan {
  std::vector<Module*> modules;                     // of each visit
  std::vector<std::vector<Parameter*>> parameters;  // of each unit
};

// One unit for each module that is marked as one; where none is, for each child of the model; and one for each tile
// within it (nn/layers.h), whose visits name the units of the module around it too, for that goes on. Parameters
// outside of all of these make a last unit that no visit names: it is always there. Of modules that are alike and
// follow one another (a model's blocks: those that can be checkpointed), `blocks_per_unit` share a unit. Frozen
// parameters beside trained ones make a unit of their own, which has neither gradients nor optimizer state.
ModelUnits plan_units(Module& model, std::int64_t blocks_per_unit = 1);

// So many blocks that a unit of them has at least kLeastUnitElements, and that at least four units are left, so that
// one is used while others are on their way. From the model alone: the bits of a run depend on it.
inline constexpr std::int64_t kLeastUnitElements = std::int64_t{1} << 21;
std::int64_t blocks_worth_a_message(Module& model);

}  // namespace zeepo
