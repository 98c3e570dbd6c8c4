// Units: parameters that travel together, laid out one after another in one flat buffer; and the visits that need them.
//
// A front end (binding/) makes them from its model. The engine knows parameters by unit and index, and visits by
// number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/shape.h"
#include "zeepo/base/timeline.h"
#include "zeepo/comm/communicator.h"
#include "zeepo/tensor/weight_source.h"
#include "zeepo/zero/shard.h"

namespace zeepo {

// Elements [begin, begin + elements) of a named weight.
struct UnitWeight {
  WeightSlice slice;
  std::int64_t begin, elements;
};

struct UnitParameter {
  std::int64_t offset;  // elements from the start of the unit
  Shape shape;
  bool trainable;
  std::vector<UnitWeight> weights;  // one after another, all of the parameter
  std::size_t group = 0;            // of parameters that are stepped by one rule

  Extent extent() const { return {offset, offset + shape.elements()}; }
};

struct ParameterId {
  std::size_t unit, index;
};

struct Unit {
  // Elements between two parameters' starts: 256 bytes in the narrowest dtype, so that matrix products see aligned
  // memory wherever the unit lies.
  static constexpr std::int64_t kAlignment = 128;

  std::string name;
  std::vector<UnitParameter> parameters;
  std::int64_t elements = 0;  // padding included
};

// A part of the model that runs, and the units it needs while it does: its own, and those it borrows parameters from.
struct UnitVisit {
  std::vector<std::size_t> units;
  std::string name;
  std::optional<std::size_t> around = {};  // of a tile: the visit that its visits lie within
};

struct UnitPlan {
  std::vector<Unit> units;  // in the order of the forward pass
  std::vector<UnitVisit> visits;

  // "gradients of model.layers.3": of a collective, and of a span of the timeline, which borrows the unit's name.
  Label label(std::string_view what, std::size_t unit) const;
  About about(std::string_view what, std::size_t unit) const { return {what, units[unit].name}; }
};

// Elements of all parameters, without padding.
std::int64_t parameter_count(const UnitPlan& plan);
std::int64_t trained_count(const UnitPlan& plan);  // of those that are trained

}  // namespace zeepo
