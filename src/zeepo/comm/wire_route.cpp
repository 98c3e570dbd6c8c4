#include "zeepo/comm/wire_route.h"

namespace zeepo {
namespace {

// Each other rank in turn, so that no two begin with the same one.
template <class F>
void for_others(int rank, int ranks, F&& f) {
  for (int step = 1; step < ranks; ++step) f((rank + step) % ranks, (rank + ranks - step) % ranks);
}

}  // namespace

GatherRoute gather_route(const NodeMap& nodes, int rank) {
  GatherRoute route;
  route.held = nodes.met_by(rank);
  const int node = nodes.node_of(rank);
  for_others(rank, nodes.ranks(), [&](int to, int from) {
    if (nodes.node_of(to) == node)
      route.within.out.push_back({to, route.held});
    else if (nodes.partner(nodes.node_of(to), rank) == to)
      route.between.out.push_back({to, {rank}});
    if (nodes.node_of(from) == node)
      route.within.in.push_back({from, nodes.met_by(from)});
    else if (nodes.partner(node, from) == rank)
      route.between.in.push_back({from, {from}});
  });
  return route;
}

ReduceRoute reduce_route(const NodeMap& nodes, int rank) {
  ReduceRoute route;
  route.summed = nodes.met_by(rank);
  const int node = nodes.node_of(rank);
  for_others(rank, nodes.ranks(), [&](int to, int from) {
    if (nodes.node_of(to) == node)
      route.within.out.push_back({to, nodes.met_by(to)});
    else if (nodes.partner(node, to) == rank)
      route.between.out.push_back({to, {to}});
    if (nodes.node_of(from) == node)
      route.within.in.push_back({from, route.summed});
    else if (nodes.partner(nodes.node_of(from), rank) == from)
      route.between.in.push_back({from, {rank}});
  });
  return route;
}

SentBytes sent_in(const WirePhase& phase, const NodeMap& nodes, int rank, std::size_t part_bytes) {
  SentBytes sent;
  for (const Hop& hop : phase.out) {
    const auto bytes = static_cast<std::int64_t>(hop.parts.size() * part_bytes);
    sent.all += bytes;
    if (nodes.node_of(hop.rank) != nodes.node_of(rank)) sent.between_nodes += bytes;
  }
  return sent;
}

std::size_t parts_in(const std::vector<Hop>& hops) {
  std::size_t parts = 0;
  for (const Hop& hop : hops) parts += hop.parts.size();
  return parts;
}

}  // namespace zeepo
