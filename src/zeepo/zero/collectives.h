// The engine's collectives, overlapped with the compute: one thread runs them in the order of the calls, which is the
// same on every rank.
//
// Nothing is sent in a dry pass or by a rank alone. The tensors of a collective must live until the compute thread has
// waited for its Collecting: so every pass allocates and frees at the same places. A collective starts when the compute
// stream has reached the point of the call; after the wait, the compute stream continues when the collective is done.
// With NCCL the wait blocks the host only until the collective is queued, and an all-gather may overtake a reduction:
// a collective that needs the result of another is started after the wait for that one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "zeepo/base/timeline.h"
#include "zeepo/comm/communicator.h"
#include "zeepo/comm/device_communicator.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/device/worker.h"
#include "zeepo/memory/tier.h"

namespace zeepo {

// A collective under way: `given` is done when the collective is queued, `done` is the point at which it has ended.
struct Collecting {
  Completion given;
  std::shared_ptr<Point> done;
};

class Collectives {
 public:
  enum class Overlap : bool { no, yes };  // no: each call returns when its collective is done

  // Collectives on memory of the current Device. Where GPU memory is sent through host memory, staging is allocated.
  Collectives(Communicator& communicator, Overlap overlap);

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  bool alone() const { return communicator_.alone(); }

  // All-gather and reduce-scatter start when `after` is done.
  [[nodiscard]] Collecting all_gather(ConstView shard, View full, const Label& label,
                                      std::vector<Completion> after = {});
  [[nodiscard]] Collecting reduce_scatter(ConstView full, View scratch, View shard, const Label& label,
                                          const SumInto& how = {}, std::vector<Completion> after = {});
  // Blocking.
  void all_reduce(View x, const Label& label);
  void broadcast(View x, int root, const Label& label);

  // Waits for a collective and counts the time as stall.
  void wait(Collecting& collecting);
  // Called after the compute stream was synchronized: throws Error when a collective that the stream waited for failed.
  void check() const;
  double stalled_seconds() const { return stalled_seconds_; }
  const CommBytes& sent() const { return sent_; }

 private:
  Collecting run(std::function<Point(const Point& start)> job);

  Communicator& communicator_;
  Overlap overlap_;
  Timeline* timeline_;
  double stalled_seconds_ = 0;
  CommBytes sent_;
  Block staging_;
  std::unique_ptr<DeviceCommunicator> through_host_;
  DeviceCommunicator* ranks_ = nullptr;  // null: nothing is sent
  std::unique_ptr<Worker> worker_;       // the last member: its jobs use the members above
};

}  // namespace zeepo
