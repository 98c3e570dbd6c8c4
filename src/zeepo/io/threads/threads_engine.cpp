#include "zeepo/io/threads/threads_engine.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/start_thread.h"

namespace zeepo {

ThreadsEngine::ThreadsEngine(const IoOptions& options, std::string why) : options_(options), why_(std::move(why)) {
  try {
    for (int i = 0; i < options.threads; ++i)
      threads_.push_back(start_thread(fmt::format("file I/O, one of {}", options.threads), [this] { work(); }));
  } catch (...) {
    stop();
    throw;
  }
}

ThreadsEngine::~ThreadsEngine() { stop(); }

void ThreadsEngine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::string ThreadsEngine::name() const { return fmt::format("{} threads ({})", options_.threads, why_); }

void ThreadsEngine::register_ranges(std::span<const std::span<std::byte>>) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(registered_, true)) throw Error("I/O engine: memory can be registered only once");
}

IoCompletion ThreadsEngine::submit(IoDirection direction, std::span<const IoTransfer> transfers) {
  const auto calls = cut_into_calls(direction, transfers, options_.call_bytes);
  auto completion = completion_of(calls);
  {
    const std::lock_guard lock(mutex_);
    queue(calls, calls_);
  }
  if (calls.size() == 1)
    changed_.notify_one();
  else
    changed_.notify_all();
  return completion;
}

int ThreadsEngine::call(const IoCall& call) const {
  const std::size_t bytes = options_.faults ? options_.faults->ask(call) : call.memory.size();
  const ssize_t moved = call.direction == IoDirection::read
                            ? ::pread(call.file->descriptor, call.memory.data(), bytes, call.offset)
                            : ::pwrite(call.file->descriptor, call.memory.data(), bytes, call.offset);
  const int result = moved < 0 ? -errno : static_cast<int>(moved);
  return options_.faults ? options_.faults->answer(call, result) : result;
}

void ThreadsEngine::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !calls_.empty(); });
    if (calls_.empty()) return;
    PendingCall pending = std::move(calls_.front());
    calls_.pop_front();
    lock.unlock();
    if (pending.submission->failed())
      pending.submission->finish_call();
    else
      while (advance(pending, call(pending.call))) {
      }
    pending = {};
    lock.lock();
  }
}

}  // namespace zeepo
