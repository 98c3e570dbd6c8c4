#include "zeepo/comm/node_map.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/errors.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/comm/wire_route.h"

namespace zeepo {
namespace {

// Equal nodes in a row and dealt out in turn, one node, nodes of one rank, unequal ones.
const std::vector<std::vector<int>> kLayouts{{0, 0, 1, 1},    {0, 1, 0, 1},    {0, 0, 0}, {0, 1, 2},
                                             {7, 3, 7, 7, 3}, {0, 1, 1, 1, 1}, {5},       {0, 0, 1, 1, 2, 2, 2}};

TEST(NodeMap, NumbersNodesInTheOrderOfTheirRanks) {
  const NodeMap map({7, 3, 7, 3, 9});
  EXPECT_EQ(map.nodes(), 3);
  EXPECT_EQ(map.ranks_of(0), (std::vector{0, 2}));
  EXPECT_EQ(map.ranks_of(2), std::vector{4});
  EXPECT_EQ(map.partner(1, 2), 3);  // the second rank of its node meets the second
  EXPECT_EQ(map.partner(2, 2), 4);  // where there is one
  EXPECT_EQ(map.met_by(4), (std::vector{0, 1, 2, 3, 4}));
}

TEST(NodeMap, ASizeOfNodesOverridesWhereTheRanksAre) {
  ThreadsWorld world(6);
  EXPECT_EQ(NodeMap::of(world.communicator(0), 0).nodes(), 1);
  EXPECT_EQ(NodeMap::of(world.communicator(0), 2).nodes(), 3);
  EXPECT_EQ(NodeMap::of(world.communicator(0), 2).ranks_of(1), (std::vector{2, 3}));
  EXPECT_TRUE(names(error_text([&] { NodeMap::of(world.communicator(0), 4); }), "4", "6", "--node-size"));
  ThreadsWorld alone(1);
  EXPECT_EQ(NodeMap::of(alone.communicator(0), 8).nodes(), 1);
}

// Both sides of every hop name the same parts, and each part comes to each rank once.
TEST(WireRoute, GathersEveryPartOnceOnEveryRank) {
  for (const GatherWay way : {GatherWay::direct, GatherWay::ring})
    for (const auto& layout : kLayouts) {
      const NodeMap nodes(layout);
      std::vector<std::multiset<int>> here(layout.size());
      std::multiset<std::vector<int>> sent, received;
      for (int rank = 0; rank < nodes.ranks(); ++rank) {
        const GatherRoute route = gather_route(nodes, rank, way);
        EXPECT_EQ(route.between.size(), gather_route(nodes, 0, way).between.size());  // all make the same exchanges
        EXPECT_EQ(route.within.size(), gather_route(nodes, 0, way).within.size());
        auto& own = here[static_cast<std::size_t>(rank)];
        own.insert(rank);
        int number = 0;
        const auto follow = [&](const WirePhase& phase) {
          for (const Hop& hop : phase.out)
            for (const int part : hop.parts) {
              EXPECT_TRUE(own.contains(part)) << "rank " << rank << " sends part " << part << " before it has it";
              sent.insert({number, rank, hop.rank, part});
            }
          for (const Hop& hop : phase.in)
            for (const int part : hop.parts) {
              received.insert({number, hop.rank, rank, part});
              own.insert(part);
            }
          ++number;
        };
        for (const WirePhase& phase : route.between) follow(phase);
        EXPECT_EQ(std::set<int>(route.held.begin(), route.held.end()), std::set<int>(own.begin(), own.end()));
        for (const WirePhase& phase : route.within) {
          follow(phase);
          for (const Hop& hop : phase.out) EXPECT_EQ(nodes.node_of(hop.rank), nodes.node_of(rank));
        }
      }
      EXPECT_EQ(sent, received);
      for (const auto& parts : here) {
        EXPECT_EQ(parts.size(), layout.size());
        EXPECT_EQ(std::set<int>(parts.begin(), parts.end()).size(), layout.size());
      }
    }
}

TEST(WireRoute, ARingGoesFromEachNodeToTheNext) {
  const NodeMap nodes({0, 0, 1, 1, 2, 2});
  const GatherRoute route = gather_route(nodes, 3, GatherWay::ring);
  ASSERT_EQ(route.between.size(), 2u);
  for (const WirePhase& phase : route.between) {
    ASSERT_EQ(phase.out.size(), 1u);
    EXPECT_EQ(phase.out[0].rank, 5);
    EXPECT_EQ(phase.in[0].rank, 1);
  }
  EXPECT_EQ(route.between[0].out[0].parts, std::vector{3});
  EXPECT_EQ(route.between[1].out[0].parts, std::vector{1});
  EXPECT_EQ(gather_route(NodeMap({0, 0, 0}), 1, GatherWay::ring).within.size(), 2u);
  // The same bytes as straight.
  for (const auto& layout : kLayouts) {
    const NodeMap map(layout);
    SentBytes direct, ring;
    for (int rank = 0; rank < map.ranks(); ++rank) {
      direct = direct + sent_in(gather_route(map, rank).between, map, rank, 100);
      ring = ring + sent_in(gather_route(map, rank, GatherWay::ring).between, map, rank, 100);
    }
    EXPECT_EQ(ring.between_nodes, direct.between_nodes);
  }
}

// Every rank's part of every shard is summed in its node by one rank, and the node's sum comes to the owner.
TEST(WireRoute, ReducesEveryPartOfEveryRankOnce) {
  for (const auto& layout : kLayouts) {
    const NodeMap nodes(layout);
    std::multiset<std::vector<int>> sent, received;
    for (int rank = 0; rank < nodes.ranks(); ++rank) {
      const ReduceRoute route = reduce_route(nodes, rank);
      EXPECT_EQ(route.between.in.size(), static_cast<std::size_t>(nodes.nodes() - 1));
      EXPECT_EQ(route.between.out.size(), route.summed.size() - 1);
      std::set<int> given(route.summed.begin(), route.summed.end());
      for (const Hop& hop : route.within.out) given.insert(hop.parts.begin(), hop.parts.end());
      EXPECT_EQ(given.size(), layout.size());
      for (const auto* phase : {&route.between, &route.within}) {
        for (const Hop& hop : phase->out) sent.insert({rank, hop.rank, hop.parts[0]});
        for (const Hop& hop : phase->in) received.insert({hop.rank, rank, hop.parts[0]});
      }
    }
    EXPECT_EQ(sent, received);
  }
}

TEST(WireRoute, APartCrossesToEachOtherNodeOnce) {
  const NodeMap nodes({0, 0, 0, 0, 1, 1, 1, 1});
  const GatherRoute gather = gather_route(nodes, 5);
  EXPECT_EQ(sent_in(gather.between, nodes, 5, 100).between_nodes, 100);
  EXPECT_EQ(sent_in(gather.within, nodes, 5, 100).between_nodes, 0);
  EXPECT_EQ(sent_in(gather.between, nodes, 5, 100).all + sent_in(gather.within, nodes, 5, 100).all, 700);
  const ReduceRoute reduce = reduce_route(nodes, 5);
  EXPECT_EQ(sent_in(reduce.between, nodes, 5, 100).between_nodes, 100);
  EXPECT_EQ(sent_in(reduce.within, nodes, 5, 100).all, 600);
}

}  // namespace
}  // namespace zeepo
