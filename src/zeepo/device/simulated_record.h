// When each resource of a simulated machine works, for a picture.
//
// While a record lives, whatever clocks of its thread do is written down in it; one lives at a time on a thread.
#pragma once

#include <array>
#include <vector>

#include "zeepo/device/simulated_time.h"

namespace zeepo {

class SimulatedRecord {
 public:
  struct Stretch {
    double begin, end;
  };
  using Stretches = std::vector<Stretch>;

  SimulatedRecord();
  ~SimulatedRecord();
  SimulatedRecord(const SimulatedRecord&) = delete;
  SimulatedRecord& operator=(const SimulatedRecord&) = delete;

  // In the order in which the work was given.
  const Stretches& of(SimulatedTime::Resource resource) const { return all_[static_cast<std::size_t>(resource)]; }

  // Of this thread's record; null where there is none.
  static Stretches* current(SimulatedTime::Resource resource);

 private:
  std::array<Stretches, SimulatedTime::kResources> all_;
};

}  // namespace zeepo
