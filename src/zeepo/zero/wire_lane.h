// Gathers and reductions by messages (comm/wire_collectives.h) on memory of the current Device.
//
// Messages are made in host memory. A CPU's values are there; a GPU's are copied to the host, coded and summed there as
// a CPU's are, and what comes is copied back: one codec, the same bits. gather() and reduce() are called by the thread
// that sends, one at a time, and have ended when they return. All else comes from the rank's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "zeepo/comm/wire_collectives.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

// Bytes of host memory: the device's own where that is host memory, else of the tier below.
class HostRoom {
 public:
  enum class Of { device, host };

  HostRoom() = default;
  HostRoom(Of of, std::size_t bytes, Kind kind);

  std::span<std::byte> bytes() const;  // as many in a dry pass, at no address

 private:
  Tensor on_device_;
  Block on_host_;
};

// How an all-gather sends the ranks' shards, and where it keeps the node's copy of them, if anywhere.
struct GatherWire {
  WireType type = WireType::same;
  GatherFrom from = GatherFrom::ranks;
  std::span<std::byte> node_copy = {};
};

class WireLane {
 public:
  // Throws Error for nodes that the ranks cannot make, and for what a GPU's memory cannot be sent as.
  WireLane(Communicator& ranks, const WireOptions& options);

  const NodeMap& nodes() const { return plan_.nodes; }
  // Whether a gather goes by messages; else the device's communicator has it.
  bool carries(const GatherWire& wire) const;
  SentBytes sent_by_gather(const GatherWire& wire, DType dtype, std::int64_t shard_elements) const;
  SentBytes sent_by_reduce(WireType type, DType dtype, std::int64_t shard_elements) const;

  // What a run sends of a unit.
  struct Use {
    std::int64_t shard_elements = 0;
    WireType gathered_as = WireType::same, reduced_as = WireType::same;
    bool node_copy = false;
  };
  // Memory for the largest of them, before the first.
  void take_room(const std::vector<Use>& uses, DType dtype, bool feedback);
  // For this rank's part of its node's copy of a unit; none where there is one node.
  HostRoom node_copy_room(WireType type, DType dtype, std::int64_t shard_elements) const;

  // Once `start` has been reached; views of the device's memory.
  void gather(const Point& start, const GatherWire& wire, ConstView shard, View full, const Label& label);
  // `error` as reduce_by_messages() has it.
  void reduce(const Point& start, WireType type, ConstView full, View shard, View error, const Label& label,
              const SumInto& how);

 private:
  HostRoom::Of place() const { return on_host_ ? HostRoom::Of::device : HostRoom::Of::host; }
  // Between the device and the host, as many as have bytes; returns when all are done.
  void copy(std::vector<LinkCopy> copies);

  Communicator& ranks_;
  WirePlan plan_;
  bool ring_;     // gathers go around
  bool on_host_;  // the memory of this Device is host memory
  HostRoom messages_, values_;
  ThreadPool pool_{1};  // coding is done on the thread that sends
  CpuStream stream_{pool_};
  std::unique_ptr<CopyLane> copies_;  // of a GPU
};

}  // namespace zeepo
