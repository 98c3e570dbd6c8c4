#include "zeepo/elastic/rank_layout.h"

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {

RankLayout layout_on(const std::vector<HostSlots>& hosts, std::int64_t micro_batches) {
  if (hosts.empty() || micro_batches < 1)
    throw Error("layout_on: {} hosts, {} micro-batches: both must be at least 1", hosts.size(), micro_batches);
  RankLayout layout;
  layout.ranks = static_cast<int>(std::min<std::int64_t>(slots_of(hosts), micro_batches));
  while (micro_batches % layout.ranks != 0) --layout.ranks;
  layout.grad_accum = micro_batches / layout.ranks;
  std::vector<int> given(hosts.size());
  for (int left = layout.ranks; left > 0;)  // one for each in turn
    for (std::size_t i = 0; i < hosts.size() && left > 0; ++i)
      if (given[i] < hosts[i].slots) {
        ++given[i];
        --left;
      }
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (given[i] > 0) layout.hosts.push_back({hosts[i].name, given[i]});
  return layout;
}

}  // namespace zeepo
