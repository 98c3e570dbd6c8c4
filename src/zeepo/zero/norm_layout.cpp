#include "zeepo/zero/norm_layout.h"

#include <algorithm>
#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/kernels/gradient_norm.h"

namespace zeepo {
namespace {

std::int64_t nodes_of(const UnitStates& unit, std::size_t rank) {
  const std::int64_t shard = unit.own.elements();
  return unit.trained ? norm_nodes(static_cast<std::int64_t>(rank) * shard, shard) : 0;
}

}  // namespace

NormLayout norm_layout(const StatePlan& plan) {
  const int ranks = plan.ranks.size;
  const auto own = static_cast<std::size_t>(plan.ranks.rank);
  NormLayout layout;
  std::vector<std::int64_t> nodes(static_cast<std::size_t>(ranks));  // so far, of each rank
  std::int64_t all = 0;
  for (const auto& unit : plan.units) {
    layout.first.push_back(nodes[own]);
    layout.count.push_back(nodes_of(unit, own));
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      const std::int64_t more = nodes_of(unit, rank);
      nodes[rank] += more;
      all += more;
    }
    if (unit.trained) layout.blocks += norm_blocks(unit.whole.elements());
  }
  layout.rank_nodes = std::max<std::int64_t>(1, *std::ranges::max_element(nodes));
  if (layout.rank_nodes > std::numeric_limits<std::int32_t>::max() / 4 / ranks)
    throw Error("gradient norm: {} parts of {} ranks: must be at most 2^29 together", layout.rank_nodes, ranks);
  layout.table_elements = layout.blocks + 1 + 2 * all;
  return layout;
}

std::vector<std::int32_t> norm_table(const StatePlan& plan, const NormLayout& layout) {
  std::vector<std::int64_t> nodes(static_cast<std::size_t>(plan.ranks.size));  // so far, of each rank
  std::vector<std::int32_t> table, entries;
  table.reserve(static_cast<std::size_t>(layout.table_elements));
  for (const auto& unit : plan.units) {
    if (!unit.trained) continue;
    const std::int64_t shard = unit.own.elements();
    std::int64_t open = -1;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      const auto r = static_cast<std::int64_t>(rank);
      for_norm_nodes(r * shard, shard, [&](std::int64_t block, std::uint32_t, int level) {
        if (block != open) table.push_back(static_cast<std::int32_t>(entries.size() / 2));
        open = block;
        entries.push_back(static_cast<std::int32_t>(r * layout.rank_nodes + nodes[rank]++));
        entries.push_back(level);
      });
    }
  }
  table.push_back(static_cast<std::int32_t>(entries.size() / 2));
  table.insert(table.end(), entries.begin(), entries.end());
  return table;
}

}  // namespace zeepo
