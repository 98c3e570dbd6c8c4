// The connections that wait for a thread, and the threads: one more where all are busy, up to their number. A
// connection too many is refused by whoever brings it.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zeepo {

class BoundedQueue final : public httplib::TaskQueue {
 public:
  BoundedQueue(int threads, std::size_t waiting);
  ~BoundedQueue() override { BoundedQueue::shutdown(); }
  // httplib's return type is void or bool, by its version.
  auto enqueue(std::function<void()> task)
      -> decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>())) override {
    take(std::move(task));
    return decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>()))(true);
  }
  void shutdown() override;

  // Whether the task that this thread runs is to close its connection without an answer.
  static bool refusing() { return refusing_; }

 private:
  void take(std::function<void()> task);
  void add_thread();
  void work();

  static thread_local bool refusing_;
  std::size_t most_threads_;
  const std::size_t waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::size_t busy_ = 0;  // threads that run a task
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace zeepo
