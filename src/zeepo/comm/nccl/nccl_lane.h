// An NCCL communicator of all ranks with the stream that its calls run on, one after another.
//
// Calls come from one thread; abort(), async_error() and overdue() may come from any. After abort() no call reaches
// NCCL.
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
  // On the current GPU of this thread; every rank at once. `ranks` carries what NCCL needs to find them.
  NcclLane(Communicator& ranks, const char* what);
  ~NcclLane();  // of a lane that is not closed: aborts, sends nothing
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  using Work = std::function<void(ncclComm_t, cudaStream_t)>;
  // Does `work`, which is `call`, on the stream once `start` has been reached, and returns where it is done. Throws
  // Error after abort().
  Point run(const Point& start, const Call& call, const Work& work);
  // What went wrong since a call returned, in NCCL's words.
  std::optional<std::string> async_error();
  // How long a call may run from now on; 0, the default: forever.
  void set_patience(double seconds);
  // The call that runs for longer: it waits for other ranks, or for what they send. It counts from the first time that
  // this is asked while it runs.
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
    Point begun, done;
    std::optional<Clock::time_point> seen = {};  // first, running
  };
  std::timed_mutex mutex_;
  ncclComm_t comm_ = nullptr;  // null: closed or aborted
  std::unique_ptr<cudaStream_t, Destroy<cudaStream_t, cudaStreamDestroy>> stream_;
  Clock::duration patience_ = {};
  std::deque<Running> running_;  // in order, not yet seen to have ended; none without patience
};

}  // namespace zeepo
