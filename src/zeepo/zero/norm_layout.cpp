#include "zeepo/zero/norm_layout.h"

#include <algorithm>
#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/kernels/gradient_norm.h"

namespace zeepo {

NormLayout norm_layout(const StatePlan& plan) {
  const int ranks = plan.ranks.size;
  NormLayout layout;
  std::vector<std::int64_t> nodes(static_cast<std::size_t>(ranks));  // so far, of each rank
  std::vector<std::vector<std::int64_t>> first(nodes.size());        // of each rank and unit
  for (const auto& unit : plan.units) {
    const std::int64_t shard = unit.own.elements();
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      first[rank].push_back(nodes[rank]);
      if (unit.trained) nodes[rank] += norm_nodes(static_cast<std::int64_t>(rank) * shard, shard);
    }
    if (unit.trained) layout.blocks += norm_blocks(unit.whole.elements());
  }
  layout.rank_nodes = std::max<std::int64_t>(1, *std::ranges::max_element(nodes));
  if (layout.rank_nodes > std::numeric_limits<std::int32_t>::max() / 4 / ranks)
    throw Error("gradient norm: {} parts of {} ranks: must be at most 2^29 together", layout.rank_nodes, ranks);

  const auto own = static_cast<std::size_t>(plan.ranks.rank);
  layout.first = first[own];
  for (const auto& unit : plan.units)
    layout.count.push_back(unit.trained ? norm_nodes(unit.own.begin, unit.own.elements()) : 0);

  std::vector<std::int32_t> entries;
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    if (!plan.units[u].trained) continue;
    const std::int64_t shard = plan.units[u].own.elements();
    std::int64_t open = -1;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      const auto r = static_cast<std::int64_t>(rank);
      std::int64_t index = r * layout.rank_nodes + first[rank][u];
      for_norm_nodes(r * shard, shard, [&](std::int64_t block, std::uint32_t, int level) {
        if (block != open) layout.table.push_back(static_cast<std::int32_t>(entries.size() / 2));
        open = block;
        entries.push_back(static_cast<std::int32_t>(index++));
        entries.push_back(level);
      });
    }
  }
  layout.table.push_back(static_cast<std::int32_t>(entries.size() / 2));
  layout.table.insert(layout.table.end(), entries.begin(), entries.end());
  return layout;
}

}  // namespace zeepo
