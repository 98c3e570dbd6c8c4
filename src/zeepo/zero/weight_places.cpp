#include "zeepo/zero/weight_places.h"

#include "zeepo/base/error.h"

namespace zeepo {

WeightPlaces::WeightPlaces(const UnitPlan& plan) : units_(plan.units.size()) {
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    for (const auto& parameter : plan.units[u].parameters) {
      std::int64_t at = parameter.offset;
      for (const auto& [slice, begin, elements] : parameter.weights) {
        const SlicePlace place{begin, elements, {u, at}};
        names_.try_emplace(slice.name, PlacedWeight{slice, {}}).first->second.places.push_back(place);
        units_[u].push_back({slice, place});
        at += elements;
      }
    }
  for (const auto& [name, weight] : names_) {
    std::int64_t end = 0;
    for (const auto& place : weight.places) {
      if (place.begin != end) throw Error("engine: two parameters are named {}", name);
      end += place.elements;
    }
    if (end != weight.slice.shape.elements())
      throw Error("engine: {} has {} elements, its parameters have {}", name, weight.slice.shape.elements(), end);
  }
}

const PlacedWeight& WeightPlaces::of(const std::string& name) const {
  const auto found = names_.find(name);
  if (found == names_.end()) throw Error("engine: no weight is named {}", name);
  return found->second;
}

}  // namespace zeepo
