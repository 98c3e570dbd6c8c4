#include "zeepo/comm/node_map.h"

#include <map>

#include "zeepo/base/error.h"

namespace zeepo {

NodeMap::NodeMap(const std::vector<int>& node_of_rank) {
  std::map<int, int> numbers;
  for (std::size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const int node = numbers.try_emplace(node_of_rank[rank], static_cast<int>(numbers.size())).first->second;
    if (node == nodes()) ranks_of_.emplace_back();
    auto& ranks = ranks_of_[static_cast<std::size_t>(node)];
    node_of_.push_back(node);
    index_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(rank));
  }
}

NodeMap NodeMap::of(const Communicator& ranks, int node_size) {
  std::vector<int> nodes = ranks.nodes();
  if (node_size > 0 && ranks.size() > 1) {
    if (ranks.size() % node_size != 0)
      throw Error("nodes of {} ranks: {} ranks are not a multiple of that; give another --node-size, or leave it out",
                  node_size, ranks.size());
    for (int rank = 0; rank < ranks.size(); ++rank) nodes[static_cast<std::size_t>(rank)] = rank / node_size;
  }
  return NodeMap(nodes);
}

int NodeMap::partner(int node, int rank) const {
  const auto& ranks = ranks_of(node);
  return ranks[static_cast<std::size_t>(index_[static_cast<std::size_t>(rank)]) % ranks.size()];
}

std::vector<int> NodeMap::met_by(int rank) const {
  std::vector<int> met;
  for (int other = 0; other < ranks(); ++other)
    if ((node_of(other) != node_of(rank) || other == rank) && partner(node_of(rank), other) == rank)
      met.push_back(other);
  return met;
}

}  // namespace zeepo
