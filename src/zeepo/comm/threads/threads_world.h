// Ranks as threads of one process: for tests and debugging.
//
// The world owns one communicator a rank and must outlive the threads that use them. A call publishes its views, waits
// for all ranks, reads the others' memory, and waits again, so that no rank leaves while its memory is read. A rank
// that fails or ends makes the calls that wait for it throw.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "zeepo/comm/call.h"
#include "zeepo/comm/communicator.h"

namespace zeepo {

class ThreadsWorld {
 public:
  explicit ThreadsWorld(int ranks);
  ~ThreadsWorld();

  int size() const { return static_cast<int>(communicators_.size()); }
  Communicator& communicator(int rank);
  // From now on calls that wait for this rank throw an Error with the rank and the message; the first one counts.
  void fail(int rank, const std::string& message);
  // The rank makes no more calls; who still waits for one gets an Error.
  void leave(int rank);

 private:
  friend class ThreadsCommunicator;

  // What a rank shows the others between the two waits.
  struct Posted {
    Call call;
    ConstView view;
    std::span<const Outgoing> messages;
  };

  // Shows this rank's call, view and messages, and runs `work` while every rank's are there to be read.
  void meet(int rank, const Call& call, ConstView view, const std::function<void()>& work,
            std::span<const Outgoing> messages = {});
  void wait_for_calls(int rank, const Call& call);
  void wait_for_readers();
  // Counts the caller in; true on the last rank to come, which ends the wait of the others. With the mutex held.
  bool completes_meeting();
  ConstView posted_view(int rank) const { return posted_[static_cast<std::size_t>(rank)].view; }
  std::span<const Outgoing> posted_messages(int rank) const { return posted_[static_cast<std::size_t>(rank)].messages; }
  void check_same() const;

  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<Posted> posted_;  // each written by its rank before the first wait, read by all before the second

  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  std::uint64_t meetings_ = 0;  // waits that have ended
  std::vector<bool> left_;
  int failed_rank_ = -1;
  std::string failure_;
};

// Runs f on every rank, a thread each, and returns when all have ended. Throws the first error, naming its rank; the
// others' calls that waited for that rank have thrown too.
void run(ThreadsWorld& world, const std::function<void(Communicator&)>& f);

}  // namespace zeepo
