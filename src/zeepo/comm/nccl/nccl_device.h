// Collectives between GPUs by NCCL: gathers on one stream, reductions on another, both beside the compute.
//
// A call returns when it is queued on every rank: they first agree on what it is, over the host, so that ranks which
// differ get an Error and none waits inside of a kernel for one that never comes. A reduction is an exchange of parts
// and the sum in rank order that all backends take. A thread watches: when NCCL reports an error, a rank has failed, or
// a call runs for too long, it ends what runs on the GPU, and check() says why. Where that does not bring back who
// waits, it ends the job itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "zeepo/comm/device_communicator.h"
#include "zeepo/comm/nccl/nccl_lane.h"
#include "zeepo/device/memory.h"

namespace zeepo {

class NcclDevice final : public DeviceCommunicator {
 public:
  // Borrows `ranks`. Takes what NCCL wants of the GPU's memory at once. `timeout_seconds` as in set_progress_timeout(),
  // for the first contact too.
  NcclDevice(Communicator& ranks, int gpu, double timeout_seconds);
  ~NcclDevice() override;

  Point all_gather(const Point& start, ConstView shard, View full, const Label& label) override;
  Point reduce_scatter(const Point& start, ConstView full, View scratch, View shard, const Label& label,
                       const SumInto& how = {}) override;
  Point all_reduce(const Point& start, View x, const Label& label) override;
  Point broadcast(const Point& start, View x, int root, const Label& label) override;
  void check() const override;
  void set_progress_timeout(double seconds);
  // The clean end, on every rank.
  void close();

 private:
  void warm_up();
  // On every rank: the same call, or an Error.
  Call entered(Call call);
  Point queue(NcclLane& lane, const Point& start, const Call& call, const NcclLane::Work& work);
  void watch();
  std::optional<std::string> find_failure();
  void stop_watching();
  void fail(const std::string& message);
  void abort_lanes();

  Communicator& ranks_;
  int rank_, size_, gpu_;
  // Set first, as they are made in order.
  struct OnGpu {
    explicit OnGpu(int gpu) { cuda_check(cudaSetDevice(gpu)); }
  } current_;
  NcclLane gather_, reduce_;
  MemoryRange gathered_;  // all_reduce's parts

  std::atomic<double> timeout_seconds_ = 0;
  mutable std::mutex mutex_;  // never held while a lane or `ranks` is called
  mutable std::condition_variable changed_;
  std::optional<std::string> failure_;
  mutable bool taken_ = false;  // the failure, by who has called check()
  bool aborted_ = false;        // the lanes, after a failure
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace zeepo
