// Units: parameters that travel together, laid out one after another in one flat buffer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/nn/module.h"

namespace zeepo {

struct UnitParameter {
  std::string prefix;
  Parameter* parameter;
  std::int64_t offset;  // elements from the start of the unit
};

struct Unit {
  // Elements between two parameters' starts: 256 bytes in the narrowest dtype, so that matrix products see aligned
  // memory wherever the unit lies.
  static constexpr std::int64_t kAlignment = 128;

  std::string name;
  std::vector<UnitParameter> parameters;
  std::int64_t elements = 0;  // padding included
};

// A module that is visited, and the units it needs while it runs: its own, and those it borrows parameters from.
struct UnitVisit {
  Module* module;
  std::vector<std::size_t> units;
  std::string name;
  std::optional<std::size_t> around = {};  // of a tile: the visit that its visits lie within
};

struct UnitPlan {
  std::vector<Unit> units;  // in the order of the forward pass
  std::vector<UnitVisit> visits;
};

// One unit for each module that is marked as one; where none is, for each child of the model; and one for each tile
// within it (nn/layers.h), whose visits name the units of the module around it too, for that goes on. Parameters
// outside of all of these make a last unit that no visit names: it is always there. Of modules that are alike and
// follow one another (a model's blocks: those that can be checkpointed), `blocks_per_unit` share a unit.
UnitPlan plan_units(Module& model, std::int64_t blocks_per_unit = 1);

}  // namespace zeepo
