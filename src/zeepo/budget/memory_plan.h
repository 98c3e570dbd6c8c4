// What a run needs of each tier, as a dry pass has found it.
#pragma once

#include <array>

#include "zeepo/budget/placement_search.h"
#include "zeepo/zero/session.h"

namespace zeepo {

struct MemoryPlan {
  std::array<Usage, kPlaces.size()> peak;
  PlaceBytes bytes;  // gaps included

  bool fits(const PlaceBytes& budgets) const;
};

// What a session has used.
MemoryPlan used_by(const Session& session);

// Of each buffer between a device and files, with so much host memory (0: plenty): all of them together take at most a
// quarter of it each way.
std::int64_t staging_bytes(std::int64_t host_bytes);

}  // namespace zeepo
