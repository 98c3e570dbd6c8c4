// The engine's collectives, beside the compute: jobs on one thread, in the order they were given, the same on every
// rank.
//
// Nothing is sent in a dry pass or by a rank alone. What a job works on must live until its Collecting has been waited
// for, on the compute thread: so memory comes and goes at the same places of every pass. A job starts when the compute
// stream has come as far as when it was given; the stream goes on, after the wait, when the job is done. Where NCCL
// carries it the host itself waits only until it is queued, and a gather may overtake a reduction: what needs the
// result of another is given after the wait for it.
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

// A collective on its way: when it has been given to what carries it, and where that has done it.
struct Collecting {
  Completion given;
  std::shared_ptr<Point> done;
};

class Collectives {
 public:
  enum class Overlap : bool { no, yes };  // no: each call is done when it returns

  // On memory of the current Device. Ranks that meet in host memory take some of it, where the device's is another.
  Collectives(Communicator& communicator, Overlap overlap);

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  bool alone() const { return communicator_.alone(); }

  // Both start when `after` is done.
  [[nodiscard]] Collecting all_gather(ConstView shard, View full, const Label& label,
                                      std::vector<Completion> after = {});
  [[nodiscard]] Collecting reduce_scatter(ConstView full, View scratch, View shard, const Label& label,
                                          const SumInto& how = {}, std::vector<Completion> after = {});
  // These wait.
  void all_reduce(View x, const Label& label);
  void broadcast(View x, int root, const Label& label);

  // Waits for a collective, counting the time as stalled.
  void wait(Collecting& collecting);
  // After the compute stream has been waited for: throws Error when something that it waited for has failed since.
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
  std::unique_ptr<Worker> worker_;       // last: its jobs use what stands above
};

}  // namespace zeepo
