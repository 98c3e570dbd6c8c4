#include "zeepo/comm/threads/threads_world.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "zeepo/base/error.h"
#include "zeepo/base/start_thread.h"
#include "zeepo/comm/threads/threads_communicator.h"

namespace zeepo {

ThreadsWorld::ThreadsWorld(int ranks) {
  if (ranks < 1) throw Error("a world of {} ranks: must be at least 1", ranks);
  for (int rank = 0; rank < ranks; ++rank)
    communicators_.push_back(std::make_unique<ThreadsCommunicator>(*this, rank, ranks));
  posted_.resize(communicators_.size());
  left_.resize(communicators_.size());
}

ThreadsWorld::~ThreadsWorld() = default;

Communicator& ThreadsWorld::communicator(int rank) { return *communicators_.at(static_cast<std::size_t>(rank)); }

void ThreadsWorld::fail(int rank, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (failed_rank_ < 0) {
    failed_rank_ = rank;
    failure_ = message;
  }
  changed_.notify_all();
}

void ThreadsWorld::leave(int rank) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<std::size_t>(rank)] = true;
  changed_.notify_all();
}

void ThreadsWorld::wait_for_calls(int rank, const Call& call) {
  std::unique_lock lock(mutex_);
  const auto throw_if_alone = [&] {
    if (failed_rank_ >= 0)
      throw Error("rank {} failed while rank {} waited for {}: {}", failed_rank_, rank, describe(call), failure_);
    const auto gone = std::find(left_.begin(), left_.end(), true);
    if (gone != left_.end())
      throw Error("rank {} ended while rank {} waited for {}: every rank must make the same calls",
                  gone - left_.begin(), rank, describe(call));
  };
  throw_if_alone();
  if (completes_meeting()) return;
  // A meeting that took place counts, even if a rank has failed since: its memory is there until the second wait ends.
  const std::uint64_t before = meetings_;
  while (meetings_ == before) {
    throw_if_alone();
    changed_.wait(lock);
  }
}

bool ThreadsWorld::completes_meeting() {
  if (++arrived_ < size()) return false;
  arrived_ = 0;
  ++meetings_;
  changed_.notify_all();
  return true;
}

void ThreadsWorld::wait_for_readers() {
  std::unique_lock lock(mutex_);
  if (completes_meeting()) return;
  const std::uint64_t before = meetings_;
  changed_.wait(lock, [&] { return meetings_ != before; });
}

void ThreadsWorld::check_same() const {
  std::vector<CallHeader> headers;
  for (const Posted& posted : posted_) headers.push_back(posted.call.header);
  if (const int rank = first_different(headers))
    throw_mismatch(rank, posted_[static_cast<std::size_t>(rank)].call, posted_[0].call);
}

void ThreadsWorld::meet(int rank, const Call& call, ConstView view, const std::function<void()>& work,
                        std::span<const Outgoing> messages) {
  posted_[static_cast<std::size_t>(rank)] = {call, view, messages};
  wait_for_calls(rank, call);
  std::exception_ptr failure;
  try {
    check_same();
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  wait_for_readers();
  if (failure) std::rethrow_exception(failure);
}

void run(ThreadsWorld& world, const std::function<void(Communicator&)>& f) {
  std::mutex mutex;
  int first_rank = -1;
  std::string first_text;
  const auto failed = [&](int rank, const std::string& text) {
    const std::lock_guard lock(mutex);
    if (first_rank < 0) {
      first_rank = rank;
      first_text = text;
    }
    world.fail(rank, text);
  };
  const auto run_rank = [&](int rank) {
    try {
      f(world.communicator(rank));
      world.leave(rank);
    } catch (const std::exception& error) {
      failed(rank, error.what());
    } catch (...) {
      failed(rank, "unknown exception");
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(world.size()));
  try {
    for (int rank = 0; rank < world.size(); ++rank)
      threads.push_back(start_thread("a rank", [&run_rank, rank] { run_rank(rank); }));
  } catch (const std::exception& error) {  // the ranks that run would wait for this one
    failed(static_cast<int>(threads.size()), error.what());
  }
  for (std::thread& thread : threads) thread.join();
  if (first_rank >= 0) throw Error("rank {}: {}", first_rank, first_text);
}

}  // namespace zeepo
