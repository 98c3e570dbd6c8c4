// What the engines share: the calls that transfers are cut into, and what a result of the kernel means for one.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "zeepo/io/faults.h"

namespace zeepo {

// All calls of one submit(): it is done when they are, and has failed as soon as one has.
class Submission {
 public:
  explicit Submission(std::size_t calls) : unfinished_(calls) {}
  void finish_call(const std::string& failure = {});
  bool failed() const;
  bool done() const;
  void wait();  // throws Error with the first failure, once no call is in flight

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t unfinished_;
  std::string failure_;
};

struct PendingCall {
  IoCall call;  // what is left to do
  std::shared_ptr<Submission> submission;
  int refusals = 0;  // in a row
};

std::vector<PendingCall> cut_into_calls(IoDirection direction, std::span<const IoTransfer> transfers,
                                        std::size_t call_bytes);
IoCompletion completion_of(const std::vector<PendingCall>& calls);
// Puts all of them at the end of an engine's queue, or none and throws: nobody waits for what was not queued.
void queue(const std::vector<PendingCall>& calls, std::deque<PendingCall>& to);

// Takes in the kernel's result (bytes, or the negative error number) for pending.call. True: the rest must be
// asked for again. False: the call is finished, well or not, and its submission knows.
bool advance(PendingCall& pending, int result);
// Finishes the call with the Error that wait() will throw.
void fail(const PendingCall& pending, const std::string& cause);

}  // namespace zeepo
