// An NCCL communicator of all ranks with the stream that its calls run on, one after another.
//
// Opening, calls and the clean end come from one thread; abort(), async_error(), overdue() and set_patience() may come
// from any. After the abort of an open lane no call reaches NCCL.
#pragma once

#include <nccl.h>

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "zeepo/comm/call.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/device/cuda/check.h"

namespace zeepo {

class NcclLane {
 public:
  NcclLane() = default;
  ~NcclLane();  // of a lane that is not closed: aborts, sends nothing
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  // Once, on the current GPU of this thread; every rank at once. `ranks` carries what NCCL needs to find them.
  void open(Communicator& ranks, const char* what);

  using Work = std::function<void(ncclComm_t, cudaStream_t)>;
  // Does `work`, which is `call`, on the stream once `start` has been reached, and returns where it is done. Throws
  // Error after abort(). NCCL may wait for other ranks before it returns.
  Point run(const Point& start, const Call& call, const Work& work);
  // What went wrong since a call returned, in NCCL's words.
  std::optional<std::string> async_error();
  // How long a call may run from now on; 0, the default: forever. Forgets the calls that run on the GPU already.
  void set_patience(double seconds);
  // The call that runs for longer, on the GPU or inside of NCCL on the host, where open() counts as one too: it waits
  // for other ranks, or for what they send. It counts from the first time that this is asked while it runs and no
  // earlier one does.
  std::optional<Call> overdue();
  // Ends what runs on the stream, wherever it is: what it should have brought is not there.
  void abort();
  // The clean end, on every rank, when nothing is on its way.
  void close();

 private:
  // A thread may be inside of NCCL for as long as a lost rank is waited for: abort() then does not wait for it.
  static constexpr int kAbortPatienceSeconds = 2;
  using Clock = std::chrono::steady_clock;
  struct Running {
    Call call;
    Point begun = {}, done = {};
    std::optional<Clock::time_point> seen = {};  // first, running
  };
  // Does `work`, in which NCCL may wait on the host, as `call`.
  void inside(const Call& call, const std::function<void()>& work);
  bool patient();

  std::timed_mutex mutex_;     // held inside of NCCL
  ncclComm_t comm_ = nullptr;  // null: not open, closed or aborted
  std::unique_ptr<cudaStream_t, Destroy<cudaStream_t, cudaStreamDestroy>> stream_;

  std::mutex running_mutex_;  // held for a moment, so that who asks never waits for NCCL; taken after mutex_
  std::chrono::duration<double> patience_{0};
  std::deque<Running> running_;    // on the GPU, in order, not yet seen to have ended; none without patience
  std::optional<Running> inside_;  // on the host, after all of these
};

}  // namespace zeepo
