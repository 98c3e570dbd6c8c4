// How many ranks run where with the hosts at hand, so that every step has the same micro-batches: pure.
//
// The same micro-batches give the same bits on any number of ranks (docs/numerics.md).
#pragma once

#include <cstdint>
#include <vector>

#include "zeepo/elastic/host_list.h"

namespace zeepo {

struct RankLayout {
  std::vector<HostSlots> hosts;  // those with a rank; slots are the ranks on each
  int ranks = 0;
  std::int64_t grad_accum = 0;  // ranks x grad_accum are the micro-batches of a step
  friend bool operator==(const RankLayout&, const RankLayout&) = default;
};

// The most ranks that the hosts take and that divide the micro-batches, spread evenly. Needs a host.
RankLayout layout_on(const std::vector<HostSlots>& hosts, std::int64_t micro_batches);

}  // namespace zeepo
