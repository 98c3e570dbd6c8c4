// The engine that works everywhere: each call is one pread or pwrite of a thread.
//
// As many calls are in flight as there are threads. The destructor waits for all of them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "zeepo/io/pending_call.h"

namespace zeepo {

class ThreadsEngine final : public IoEngine {
 public:
  // `why` these and not io_uring.
  ThreadsEngine(const IoOptions& options, std::string why);
  ~ThreadsEngine() override;
  ThreadsEngine(const ThreadsEngine&) = delete;
  ThreadsEngine& operator=(const ThreadsEngine&) = delete;

  std::string name() const override;
  void register_ranges(std::span<const std::span<std::byte>> ranges) override;  // of no use here
  IoCompletion submit(IoDirection direction, std::span<const IoTransfer> transfers) override;

 private:
  void work();
  void stop();
  int call(const IoCall& call) const;

  const IoOptions options_;
  const std::string why_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PendingCall> calls_;
  bool registered_ = false;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace zeepo
