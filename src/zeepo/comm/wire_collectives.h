// All-gather and reduce-scatter by messages that ranks send each other along a route, coded or as they are.
//
// They know the nodes: see wire_route.h. Every rank makes the same calls. Memory is the caller's. Errors name the rank
// whose message is not what was to come, and the label.
#pragma once

#include "zeepo/comm/wire_codec.h"
#include "zeepo/comm/wire_route.h"

namespace zeepo {

// How one rank takes part, worked out once.
struct WirePlan {
  NodeMap nodes;
  int rank;
  GatherRoute gather;
  ReduceRoute reduce;
};
WirePlan wire_plan(const NodeMap& nodes, int rank, GatherWay way = GatherWay::direct);

// What a gather sets out from: all ranks' shards; or the node's own copy of all, which nothing between nodes is sent
// for.
enum class GatherFrom { ranks, node_copy };
// A copy of the parts that this rank holds for its node (GatherRoute::held), as messages one after another.
std::size_t node_copy_bytes(const WirePlan& plan, std::size_t part_bytes);

struct WireGather {
  WireType type = WireType::same;
  GatherFrom from = GatherFrom::ranks;
  std::span<std::byte> messages = {};   // one of each rank, in rank order; not for WireType::same
  std::span<std::byte> node_copy = {};  // written by a gather from the ranks, where there is one; read by one from it
};
// full = the ranks' shards one after another, as their messages tell them: this rank's own too. `shard` may be this
// rank's part of `full`, and is not read where the gather sets out from the node's copy.
void gather_by_messages(Communicator& ranks, CpuStream& stream, const WirePlan& plan, const WireGather& how,
                        ConstView shard, View full, const Label& label);
SentBytes sent_by_gather(const WirePlan& plan, GatherFrom from, std::size_t part_bytes);

// Bytes that a reduction needs beside its views.
std::size_t reduce_scratch_bytes(const WirePlan& plan, WireType type, std::int64_t shard_elements);
// shard = this rank's part of the sum of all ranks' `full`. The ranks of each node are summed in fp32 in rank order,
// and the nodes' sums, coded again, in the order of nodes. What a rank sums itself is not coded. `error`: of the size
// of `full`, what codes of its values have lost and the next call adds; null: nothing. Not for WireType::same.
void reduce_by_messages(Communicator& ranks, CpuStream& stream, const WirePlan& plan, WireType type, ConstView full,
                        std::span<std::byte> scratch, View shard, View error, const Label& label, const SumInto& how);
SentBytes sent_by_reduce(const WirePlan& plan, std::size_t part_bytes);

}  // namespace zeepo
