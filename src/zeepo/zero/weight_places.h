// Where in the units each weight lies, by the names that files know. Made once from a plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "zeepo/zero/unit.h"

namespace zeepo {

struct UnitPlace {
  std::size_t unit;
  std::int64_t offset;
};

// Elements [begin, begin + elements) of a named weight.
struct SlicePlace {
  std::int64_t begin, elements;
  UnitPlace place;
};

struct PlacedWeight {
  WeightSlice slice;
  std::vector<SlicePlace> places;  // in order, all of it
};

class WeightPlaces {
 public:
  struct UnitSlice {
    WeightSlice slice;
    SlicePlace place;
  };

  // Throws Error where the parameters of a name do not hold the whole weight, each element once.
  explicit WeightPlaces(const UnitPlan& plan);

  // Throws Error where there is none.
  const PlacedWeight& of(const std::string& name) const;
  const std::vector<UnitSlice>& in_unit(std::size_t unit) const { return units_[unit]; }
  const std::map<std::string, PlacedWeight>& by_name() const { return names_; }

 private:
  std::map<std::string, PlacedWeight> names_;
  std::vector<std::vector<UnitSlice>> units_;
};

}  // namespace zeepo
