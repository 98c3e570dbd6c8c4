// The engine's collectives, beside the compute: jobs on one thread, in the order they were given, the same on every
// rank.
//
// Nothing is sent in a dry pass or by a rank alone. What a job works on must live until its Completion has been waited
// for, on the compute thread: so memory comes and goes at the same places of every pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "zeepo/base/thread_pool.h"
#include "zeepo/base/timeline.h"
#include "zeepo/comm/communicator.h"
#include "zeepo/device/stream.h"
#include "zeepo/device/worker.h"

namespace zeepo {

class Collectives {
 public:
  enum class Overlap : bool { no, yes };  // no: each call is done when it returns

  Collectives(Communicator& communicator, Overlap overlap);

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }
  bool alone() const { return communicator_.size() == 1; }

  // Starts when `after` is done.
  [[nodiscard]] Completion all_gather(ConstView shard, View full, const Label& label,
                                      std::vector<Completion> after = {});
  [[nodiscard]] Completion reduce_scatter(ConstView full, View scratch, View shard, const Label& label);
  // These wait.
  void all_reduce(View x, const Label& label);
  void broadcast(View x, int root, const Label& label);

  // Waits for a completion, counting the time as stalled.
  void wait(Completion& completion);
  double stalled_seconds() const { return stalled_seconds_; }
  const CommBytes& sent() const { return sent_; }

 private:
  Completion run(std::function<void(CpuStream&)> job);

  Communicator& communicator_;
  Overlap overlap_;
  Timeline* timeline_;
  double stalled_seconds_ = 0;
  CommBytes sent_;
  ThreadPool pool_{1};  // sums of a reduction are taken on the worker's own thread
  CpuStream stream_{pool_};
  std::unique_ptr<Worker> worker_;  // last: its jobs use what stands above
};

}  // namespace zeepo
