// Who sends which parts of a whole to whom, in phases: pure data, from which bytes are sent and counted.
//
// A whole has a part for each rank. Gathered by nodes, a part crosses to each other node once, and there goes from its
// partner to the others. It crosses straight from its owner, or around a ring, from each node to the next: the same
// bytes leave each node, to one other instead of to all. Reduced by nodes, a rank's parts are first summed by their
// partners in its own node; one sum of each node crosses to the part's owner. There is no ring for sums: on its way
// around, each would be taken in an order of its own.
#pragma once

#include <vector>

#include "zeepo/comm/node_map.h"
#include "zeepo/comm/wire_type.h"

namespace zeepo {

// Parts on their way to or from one rank, in this order.
struct Hop {
  int rank = 0;
  std::vector<int> parts;
};

struct WirePhase {
  std::vector<Hop> out, in;
};

// An all-gather of a rank: its own part is there at first. Between nodes, then within them, each in phases that follow
// one another, as many on every rank. On one node, or with one rank on each, every rank is a stop of the ring.
struct GatherRoute {
  std::vector<WirePhase> between, within;
  std::vector<int> held;  // parts that are here after `between`: enough for the node with those of its peers
};
GatherRoute gather_route(const NodeMap& nodes, int rank, GatherWay way = GatherWay::direct);

// A reduce-scatter of a rank. `within`: to peers, the parts that they sum; between: sums of the node, to their owners.
struct ReduceRoute {
  WirePhase within, between;
  std::vector<int> summed;  // parts whose node sum is made here; its own among them
};
ReduceRoute reduce_route(const NodeMap& nodes, int rank);

// Bytes that a rank sends, where every part has `part_bytes`; and what of them leaves its node.
struct SentBytes {
  std::int64_t all = 0, between_nodes = 0;
  friend SentBytes operator+(const SentBytes& a, const SentBytes& b) {
    return {a.all + b.all, a.between_nodes + b.between_nodes};
  }
};
SentBytes sent_in(const WirePhase& phase, const NodeMap& nodes, int rank, std::size_t part_bytes);
SentBytes sent_in(const std::vector<WirePhase>& phases, const NodeMap& nodes, int rank, std::size_t part_bytes);

std::size_t parts_in(const std::vector<Hop>& hops);

}  // namespace zeepo
