// The engine's collectives, overlapped with the compute: one thread runs them in the order of the calls, which is the
// same on every rank.
//
// Nothing is sent in a dry pass, whose clock goes forward where it has one, or by a rank alone. The tensors of a
// collective must live until the compute thread has waited for its PendingCollective: so every pass allocates and frees
// at the same places. A collective starts when the compute stream has reached the point of the call; after the wait,
// the compute stream continues when the collective is done. With NCCL the wait blocks the host only until the
// collective is queued, and an all-gather may overtake a reduction: a collective that needs the result of another is
// started after the wait for that one. What goes by messages (wire_lane.h) has then ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "zeepo/base/timeline.h"
#include "zeepo/comm/communicator.h"
#include "zeepo/comm/device_communicator.h"
#include "zeepo/device/worker.h"
#include "zeepo/memory/tier.h"
#include "zeepo/zero/shard.h"
#include "zeepo/zero/wire_lane.h"

namespace zeepo {

// A collective under way: `given` is done when the collective is queued, `done` is the point at which it has ended.
struct PendingCollective {
  Completion given;
  std::shared_ptr<Point> done;
};

class Collectives {
 public:
  enum class Overlap : bool { no, yes };  // no: each call returns when its collective is done

  // Collectives on memory of the current Device. Where GPU memory is sent through host memory, staging is allocated.
  // Throws Error for nodes that the ranks cannot make, and for what a GPU's memory cannot be sent as.
  Collectives(Communicator& communicator, Overlap overlap, const WireOptions& wire = {});

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  bool alone() const { return communicator_.alone(); }

  // All-gather and reduce-scatter start when `after` is done.
  [[nodiscard]] PendingCollective all_gather(ConstView shard, View full, const Label& label,
                                             std::vector<Completion> after = {}, const GatherWire& wire = {});
  [[nodiscard]] PendingCollective reduce_scatter(ConstView full, View scratch, View shard, const Label& label,
                                                 const SumInto& how = {}, std::vector<Completion> after = {});
  // A reduce-scatter in codes; `error` as reduce_by_messages() has it.
  [[nodiscard]] PendingCollective reduce_coded(WireType type, ConstView full, View error, View shard,
                                               const Label& label, const SumInto& how = {},
                                               std::vector<Completion> after = {});
  // Memory that messages pass through, and that of a node's copy.
  WireLane& messages() { return messages_; }
  // Blocking.
  void all_reduce(View x, const Label& label);
  void broadcast(View x, int root, const Label& label);

  // Waits for a collective and counts the time as stall.
  void wait(PendingCollective& pending);
  // Called after the compute stream was synchronized: throws Error when a collective that the stream waited for failed.
  void check() const;
  double stalled_seconds() const { return stalled_seconds_; }
  const CommBytes& sent() const { return sent_; }

 private:
  // What carries a collective: the device's communicator, or messages of the host's.
  enum class By { device, messages };
  // `job` waits for `after`. In a dry pass it is not run.
  PendingCollective run(By by, const SentBytes& sent, const std::vector<Completion>& after,
                        std::function<Point(const Point& start)> job);
  PendingCollective simulated(By by, const SentBytes& sent, const std::vector<Completion>& after);
  SentBytes sent_to_all(std::size_t bytes) const;

  Communicator& communicator_;
  Overlap overlap_;
  Timeline* timeline_;
  double stalled_seconds_ = 0;
  CommBytes sent_;
  WireLane messages_;
  Block staging_;
  std::unique_ptr<DeviceCommunicator> through_host_;
  DeviceCommunicator* ranks_ = nullptr;  // null: nothing is sent
  std::unique_ptr<Worker> worker_;       // the last member: its jobs use the members above
};

}  // namespace zeepo
