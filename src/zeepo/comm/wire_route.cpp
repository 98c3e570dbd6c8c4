#include "zeepo/comm/wire_route.h"

namespace zeepo {
namespace {

// Each other rank in turn, so that no two begin with the same one.
template <class F>
void for_others(int rank, int ranks, F&& f) {
  for (int step = 1; step < ranks; ++step) f((rank + step) % ranks, (rank + ranks - step) % ranks);
}

WirePhase straight_between(const NodeMap& nodes, int rank) {
  WirePhase phase;
  const int node = nodes.node_of(rank);
  for_others(rank, nodes.ranks(), [&](int to, int from) {
    if (nodes.node_of(to) != node && nodes.partner(nodes.node_of(to), rank) == to) phase.out.push_back({to, {rank}});
    if (nodes.node_of(from) != node && nodes.partner(node, from) == rank) phase.in.push_back({from, {from}});
  });
  return phase;
}

WirePhase straight_within(const NodeMap& nodes, int rank) {
  WirePhase phase;
  const int node = nodes.node_of(rank);
  for_others(rank, nodes.ranks(), [&](int to, int from) {
    if (nodes.node_of(to) == node) phase.out.push_back({to, nodes.met_by(rank)});
    if (nodes.node_of(from) == node) phase.in.push_back({from, nodes.met_by(from)});
  });
  return phase;
}

// In phase s a node passes on the parts that come from s nodes before it; who holds a part there is its partner.
std::vector<WirePhase> around(const NodeMap& nodes, int rank) {
  std::vector<WirePhase> phases;
  const int count = nodes.nodes(), node = nodes.node_of(rank);
  const int next = (node + 1) % count, before = (node + count - 1) % count;
  for (int step = 0; step + 1 < count; ++step) {
    WirePhase& phase = phases.emplace_back();
    for (const int part : nodes.ranks_of((node + count - step) % count))
      if (nodes.partner(node, part) == rank) phase.out.push_back({nodes.partner(next, part), {part}});
    for (const int part : nodes.ranks_of((before + count - step) % count))
      if (nodes.partner(node, part) == rank) phase.in.push_back({nodes.partner(before, part), {part}});
  }
  return phases;
}

NodeMap each_alone(int ranks) {
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(rank);
  return NodeMap(nodes);
}

}  // namespace

GatherRoute gather_route(const NodeMap& nodes, int rank, GatherWay way) {
  GatherRoute route{.between = {}, .within = {}, .held = nodes.met_by(rank)};
  const bool ring = way == GatherWay::ring;
  if (nodes.nodes() > 1)
    route.between = ring ? around(nodes, rank) : std::vector{straight_between(nodes, rank)};
  else if (ring)
    route.within = around(each_alone(nodes.ranks()), rank);
  if (nodes.nodes() < nodes.ranks() && route.within.empty()) route.within = {straight_within(nodes, rank)};
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

SentBytes sent_in(const std::vector<WirePhase>& phases, const NodeMap& nodes, int rank, std::size_t part_bytes) {
  SentBytes sent;
  for (const WirePhase& phase : phases) sent = sent + sent_in(phase, nodes, rank, part_bytes);
  return sent;
}

std::size_t parts_in(const std::vector<Hop>& hops) {
  std::size_t parts = 0;
  for (const Hop& hop : hops) parts += hop.parts.size();
  return parts;
}

}  // namespace zeepo
