#include "zeepo/http/httplib/bounded_queue.h"

#include <utility>

namespace zeepo {

thread_local bool BoundedQueue::refusing_ = false;

BoundedQueue::BoundedQueue(int threads, std::size_t waiting)
    : most_threads_(static_cast<std::size_t>(threads)), waiting_(waiting) {
  add_thread();
}

void BoundedQueue::add_thread() {
  try {
    threads_.emplace_back([this] { work(); });
  } catch (const std::exception&) {  // the system has no more threads: those that run do it all
    most_threads_ = threads_.size();
  }
}

void BoundedQueue::take(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (!ends_ && !threads_.empty() && tasks_.size() + busy_ < most_threads_ + waiting_) {
      tasks_.push_back(std::move(task));
      if (tasks_.size() + busy_ > threads_.size() && threads_.size() < most_threads_) add_thread();
      changed_.notify_one();
      return;
    }
  }
  refusing_ = true;
  task();
  refusing_ = false;
}

void BoundedQueue::work() {
  for (;;) {
    std::function<void()> task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      ++busy_;
      refusing_ = ends_;
    }
    task();
    const std::lock_guard lock(mutex_);
    --busy_;
  }
}

// What waits is refused; what runs is waited for: the server has ended its connections.
void BoundedQueue::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

}  // namespace zeepo
