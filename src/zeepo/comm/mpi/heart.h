// The heartbeat of a rank: a thread that tells the next rank in a ring that this one lives, whatever the work does.
//
// A rank whose predecessor has been silent for kSilenceSeconds tells all others, and so does a rank that fails; from
// then on failed() is true and no MPI call may follow on this rank, since buffers of calls in flight may be gone. The
// heart then gives the work kAbortSeconds to end the job, and else ends it itself: a long computation does not keep a
// broken job alive. Time during which this process itself did not run is not counted as silence, nor while data
// arrive: on a slow link beats wait behind these.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "zeepo/comm/mpi/heart_mail.h"
#include "zeepo/comm/mpi/position.h"
#include "zeepo/comm/mpi/termination.h"

namespace zeepo {

class Heart {
 public:
  static constexpr double kBeatSeconds = 1, kSilenceSeconds = 10, kAbortSeconds = 5;

  // Borrows all of them. Throws Error when the system refuses the thread.
  Heart(const MpiWorld& world, const Position& position, const Termination& termination);
  ~Heart();  // stops the thread; sends nothing

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // "rank 3 on host node2 has been silent for 10 s while rank 0 waited for ..."; only after failed().
  std::string failure() const;
  // Tells all ranks that this one has failed, unless a failure is known already; returns when they have been told.
  void fail(const std::string& message);
  // The ranks that have not entered as many calls as this one, and where they stand.
  std::string ranks_behind();
  // All ranks have come to their end: stops beating once the neighbours know.
  void finish();
  // From now on the caller ends the job, not the heart.
  void leave_end_to_caller();

 private:
  using Clock = std::chrono::steady_clock;
  using Kind = HeartMessage::Kind;
  enum class Request { none, fail, ask, finish };
  // What the thread knows of time and of its neighbour in the ring.
  struct Pulse {
    Clock::time_point last_step = Clock::now(), resumed_at = {};
    double stood_still = 0;  // seconds before resumed_at
    double since_beat = kBeatSeconds, silent = 0;
    bool leaving = false, predecessor_left = false;
    bool told_to_end = false;
  };

  void live();
  bool step();  // false when it is time to stop
  void receive();
  void handle(const HeartMessage& message, int from);
  void take_request();
  void beat(double elapsed);
  void tell_all(const HeartMessage& failure);
  void know(const HeartMessage& failure);
  void wait_for_end();
  void obey_termination();
  HeartMessage message_of(Kind kind, const std::string& text = {}) const;

  const MpiWorld& world_;
  const Position& position_;
  const Termination& termination_;

  // The thread's own.
  HeartMail mail_;
  Pulse pulse_;

  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HeartMessage failure_;
  Request request_ = Request::none;
  std::string request_text_;
  std::vector<std::optional<HeartMessage>> answers_;
  bool stopped_ = false, stopping_ = false, caller_ends_ = false;
  std::thread thread_;
};

}  // namespace zeepo
