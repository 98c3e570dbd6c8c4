#include "zeepo/train/wire_report.h"

#include "zeepo/comm/node_map.h"
#include "zeepo/train/gather_route.h"

namespace zeepo {
namespace {

struct Route {
  std::string name, why;
};

// Why a ring, or why none.
std::string why_this_way(const RunSetup& setup) {
  const auto& timed = setup.timed_gathers;
  if (timed.part_bytes == 0) return "as --gather-route says";
  return fmt::format("gathers of {} bytes a rank took {:.2f} ms straight and {:.2f} ms around a ring", timed.part_bytes,
                     timed.direct_seconds * 1e3, timed.ring_seconds * 1e3);
}

// Messages of a GPU are made in host memory, whatever carries the rest.
std::string where_messages_pass(const TrainOptions& options) {
  return options.backend == Backend::cuda ? "; through host memory" : "";
}

Route gather_route_of(const RunSetup& setup, Communicator& communicator, const NodeMap& nodes) {
  const TrainOptions& options = setup.options;
  const bool copied = options.wire.node_copy && nodes.nodes() > 1;
  const bool by_messages = options.backend == Backend::cpu || options.wire.gather != WireType::same || copied;
  if (!by_messages && communicator.on_device() != nullptr) return {"nccl", "NCCL chooses"};
  const std::string place = by_messages ? where_messages_pass(options) : "";
  const bool ring = options.wire.gather_way == GatherWay::ring;
  if (nodes.nodes() == 1)
    return ring ? Route{"ring", "as --gather-route says"} : Route{"direct", "all ranks are on one node" + place};
  if (!by_messages) return {"direct", "GPU memory is sent a part at a time through host memory"};
  const std::string timed = (ring || setup.timed_gathers.part_bytes > 0 ? "; " + why_this_way(setup) : "") + place;
  if (!nodes.matter()) return {ring ? "ring" : "direct", "every node has one rank" + timed};
  return {ring ? "ring of nodes" : "by nodes",
          "a shard crosses to each other node once, and there goes from rank to rank" + timed};
}

Route reduce_route_of(const TrainOptions& options, Communicator& communicator, const NodeMap& nodes) {
  if (options.wire.reduce == WireType::same) {
    if (communicator.on_device() != nullptr) return {"nccl", "NCCL carries, sums are taken in rank order"};
    return {"direct", "sums are taken in rank order, to the bit: each rank's part goes to its owner"};
  }
  const std::string place = where_messages_pass(options);
  if (nodes.nodes() == 1) return {"direct", "all ranks are on one node" + place};
  return {"by nodes", "a node's sum crosses to its owner once" + place};
}

}  // namespace

nlohmann::ordered_json wire_json(const RunSetup& setup, Communicator& communicator) {
  const TrainOptions& options = setup.options;
  const NodeMap nodes = NodeMap::of(communicator, options.wire.node_size);
  const Route gather = gather_route_of(setup, communicator, nodes);
  const Route reduce = reduce_route_of(options, communicator, nodes);
  return {{"nodes", nodes.nodes()},
          {"all_gather", {{"route", gather.name}, {"dtype", name_of(options.wire.gather)}, {"why", gather.why}}},
          {"reduce_scatter", {{"route", reduce.name}, {"dtype", name_of(options.wire.reduce)}, {"why", reduce.why}}},
          {"node_copy", options.wire.node_copy && nodes.nodes() > 1}};
}

std::string wire_text(const RunSetup& setup, Communicator& communicator) {
  const TrainOptions& options = setup.options;
  const WireOptions& wire = options.wire;
  if (communicator.size() == 1)
    return wire.coded() || wire.node_copy ? "one rank: nothing is sent, and nothing is coded" : "";
  const NodeMap nodes = NodeMap::of(communicator, wire.node_size);
  const bool ring = wire.gather_way == GatherWay::ring;
  if (nodes.nodes() == 1 && !wire.coded() && !wire.node_copy && !ring) return "";
  std::string text = fmt::format("{} ranks on {} node{}: weights are gathered {}", communicator.size(), nodes.nodes(),
                                 nodes.nodes() == 1 ? "" : "s", gather_route_of(setup, communicator, nodes).name);
  if (wire.gather != WireType::same) text += fmt::format(" in {}", name_of(wire.gather));
  text += fmt::format(", gradients reduced {}", reduce_route_of(options, communicator, nodes).name);
  if (wire.reduce != WireType::same) text += fmt::format(" in {}", name_of(wire.reduce));
  if (wire.node_copy)
    text += nodes.nodes() > 1 ? "; each node keeps a copy of the weights" : "; --node-copy: one node needs no copy";
  return text;
}

}  // namespace zeepo
