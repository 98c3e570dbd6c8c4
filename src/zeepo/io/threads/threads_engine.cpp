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
  const auto pieces = cut_into_pieces(direction, transfers, options_.piece_bytes);
  auto completion = completion_of(pieces);
  {
    const std::lock_guard lock(mutex_);
    queue(pieces, pieces_);
  }
  if (pieces.size() == 1)
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
    changed_.wait(lock, [this] { return stopping_ || !pieces_.empty(); });
    if (pieces_.empty()) return;
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    lock.unlock();
    if (piece.submission->failed())
      piece.submission->finish_piece();
    else
      while (advance(piece, call(piece.call))) {
      }
    piece = {};
    lock.lock();
  }
}

}  // namespace zeepo
