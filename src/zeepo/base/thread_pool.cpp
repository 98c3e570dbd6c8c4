#include "zeepo/base/thread_pool.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/base/start_thread.h"

namespace zeepo {
namespace {

// Ends threads that wait on `started` for `stopping`.
void stop(std::mutex& mutex, bool& stopping, std::condition_variable& started, std::vector<std::thread>& threads) {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  started.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) throw Error("threads {}: must be at least 1", threads);
  workers_.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    for (int i = 1; i < threads; ++i)
      workers_.push_back(start_thread(fmt::format("the pool of {}", threads), [this] { work(); }));
  } catch (...) {
    stop(mutex_, stopping_, started_, workers_);  // they wait on members of this pool
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(mutex_, stopping_, started_, workers_); }

void ThreadPool::run(std::int64_t tasks, const std::function<void(std::int64_t)>& task) {
  if (tasks <= 1 || workers_.empty()) {
    for (std::int64_t i = 0; i < tasks; ++i) task(i);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    tasks_ = tasks;
    next_ = 0;
    busy_ = static_cast<int>(workers_.size());
    failure_ = nullptr;
    ++generation_;
  }
  started_.notify_all();
  take_tasks();
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void ThreadPool::for_range(std::int64_t n, std::int64_t grain,
                           const std::function<void(std::int64_t, std::int64_t)>& f) {
  run((n + grain - 1) / grain, [&](std::int64_t i) { f(i * grain, std::min(n, (i + 1) * grain)); });
}

void ThreadPool::take_tasks() {
  for (;;) {
    const std::int64_t i = next_.fetch_add(1);
    if (i >= tasks_) return;
    try {
      (*task_)(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      next_ = tasks_;
    }
  }
}

void ThreadPool::work() {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    started_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    lock.unlock();
    take_tasks();
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

int choose_threads(int requested, int ranks_on_node) {
  if (requested > 0) return requested;
  if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr && *text != '\0') {
    int threads = 0;
    const std::string_view view(text), outermost = view.substr(0, view.find(','));  // of OpenMP's list, level by level
    const auto [end, code] = std::from_chars(outermost.data(), outermost.data() + outermost.size(), threads);
    if (code == std::errc{} && end == outermost.data() + outermost.size() && threads > 0) return threads;
    throw Error("OMP_NUM_THREADS \"{}\": must be a positive number of threads", view);
  }
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, ranks_on_node));
}

}  // namespace zeepo
