// Which ranks share a node, and who of a node stands in for a rank of another: pure, so that a test can try every case.
#pragma once

#include <cstddef>
#include <vector>

#include "zeepo/comm/communicator.h"

namespace zeepo {

class NodeMap {
 public:
  // The node of each rank, by any numbers.
  explicit NodeMap(const std::vector<int>& node_of_rank);
  // As the ranks stand; or, with a node_size, each that many ranks in a row as one node. Throws Error unless the size
  // divides their number; a rank alone is a node in any case.
  static NodeMap of(const Communicator& ranks, int node_size);

  int ranks() const { return static_cast<int>(node_of_.size()); }
  int nodes() const { return static_cast<int>(ranks_of_.size()); }
  int node_of(int rank) const { return node_of_[static_cast<std::size_t>(rank)]; }  // from 0, in the order of the ranks
  const std::vector<int>& ranks_of(int node) const { return ranks_of_[static_cast<std::size_t>(node)]; }
  const std::vector<int>& peers_of(int rank) const { return ranks_of(node_of(rank)); }  // itself too
  // The rank of `node` that meets `rank` there: of its own node itself. Ranks of a node are met by as many as can be.
  int partner(int node, int rank) const;
  // The ranks whose partner in the rank's own node is this rank, in their order; itself too.
  std::vector<int> met_by(int rank) const;
  // Whether a node has several ranks, while there are several nodes: only then nodes make a difference.
  bool matter() const { return nodes() > 1 && nodes() < ranks(); }

 private:
  std::vector<int> node_of_, index_;  // of each rank; its number in the node
  std::vector<std::vector<int>> ranks_of_;
};

}  // namespace zeepo
