// Forward visits whose backward visit is to come: says when a unit has had its last. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "zeepo/zero/unit.h"

namespace zeepo {

class OpenVisits {
 public:
  explicit OpenVisits(const UnitPlan& plan) : plan_(plan), visits_(plan.visits.size()), units_(plan.units.size()) {}

  // A forward visit that is recorded for a backward pass.
  void open(std::size_t visit) {
    ++visits_[visit];
    for (const std::size_t unit : plan_.visits[visit].units) ++units_[unit];
  }
  // The end of a backward visit: the units whose gradients are complete. A checkpointed block visits its tiles anew in
  // each of its backward visits: a tile's unit is complete in the last of these.
  std::vector<std::size_t> close(std::size_t visit) {
    std::vector<std::size_t> complete;
    --visits_[visit];
    const auto& around = plan_.visits[visit].around;
    const bool again = around && visits_[*around] > 1;
    for (const std::size_t unit : plan_.visits[visit].units)
      if (--units_[unit] == 0 && !again) complete.push_back(unit);
    return complete;
  }
  void clear() {
    visits_.assign(visits_.size(), 0);
    units_.assign(units_.size(), 0);
  }

 private:
  const UnitPlan& plan_;
  std::vector<int> visits_, units_;
};

}  // namespace zeepo
