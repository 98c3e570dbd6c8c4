// The one thread pool: every parallel loop of a rank runs here, the caller taking part.
//
// run(tasks, f) calls f(0) .. f(tasks-1), each once, in any order and on any thread, and returns when all are done.
// Results must not depend on which thread ran what: a kernel cuts its work by shape, never by thread count, so that the
// same input gives the same bits on any machine. An exception from a task is rethrown to the caller once all have
// ended. One run at a time: calls come from one thread, and a task may not call run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace zeepo {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // counting the caller; at least 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }
  void run(std::int64_t tasks, const std::function<void(std::int64_t)>& task);
  // Cuts [0, n) into pieces of `grain` and calls f(begin, end) for each.
  void for_range(std::int64_t n, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& f);

 private:
  void work();
  void take_tasks();

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable started_, finished_;
  const std::function<void(std::int64_t)>* task_ = nullptr;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  int busy_ = 0;
  std::uint64_t generation_ = 0;
  bool stopping_ = false;
  std::exception_ptr failure_;
};

// --threads if positive, else OMP_NUM_THREADS, else this machine's cores divided by the ranks on the node.
int choose_threads(int requested, int ranks_on_node = 1);

}  // namespace zeepo
