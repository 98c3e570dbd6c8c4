// The heartbeat of a rank: a thread that tells the next rank in a ring that this one lives, whatever the work does.
//
// A rank whose predecessor has been silent for kSilenceSeconds tells all others, and so does a rank that fails; from
// then on failed() is true and no MPI call may follow on this rank, since buffers of calls in flight may be gone. The
// heart then gives the work kAbortSeconds to end the job, and else ends it itself: a long computation does not keep a
// broken job alive. Time during which this process itself did not run is not counted as silence.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "zeepo/comm/mpi/position.h"
#include "zeepo/comm/mpi/termination.h"

namespace zeepo {

class Heart {
 public:
  static constexpr double kBeatSeconds = 1, kSilenceSeconds = 10, kAbortSeconds = 5;

  // Borrows all of them.
  Heart(const MpiWorld& world, const Position& position, const Termination& termination);
  ~Heart();  // stops the thread; sends nothing

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // "rank 3 has been silent for 10 s while rank 0 waited for ..."; only after failed().
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
  enum class Kind : std::int32_t { beat, goodbye, silent, failed, question, answer };
  struct Message {
    Kind kind = Kind::beat;
    std::int32_t rank = 0;  // the one it is about
    std::int64_t entered = 0;
    char text[480] = {};
  };
  struct Sending {
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  enum class Request { none, fail, ask, finish };

  void live();
  bool step();  // false when it is time to stop
  void receive();
  void handle(const Message& message, int from);
  void send(int to, const Message& message);
  void send_to_all(const Message& message);
  bool all_sent();
  void take_request();
  void beat(double elapsed);
  void tell_all(const Message& failure);
  void know(const Message& failure);
  void wait_for_end();
  void obey_termination();
  Message message_of(Kind kind, const std::string& text = {}) const;

  const MPI_Comm comm_;
  const int rank_, size_;
  const Position& position_;
  const Termination& termination_;

  // The thread's own.
  Message incoming_;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
  std::list<Sending> sending_;
  Clock::time_point last_step_ = Clock::now(), resumed_at_;
  double stood_still_ = 0;  // seconds before resumed_at_
  double since_beat_ = kBeatSeconds, silent_ = 0;
  bool leaving_ = false, predecessor_left_ = false;

  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Message failure_;
  Request request_ = Request::none;
  std::string request_text_;
  std::vector<std::optional<Message>> answers_;
  bool stopped_ = false, stopping_ = false, caller_ends_ = false;
  std::thread thread_;
};

}  // namespace zeepo
