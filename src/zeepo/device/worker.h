// A thread that does jobs one after another, beside the compute: collectives, copies.
//
// A Completion is the promise of one job; wait() returns when it is done and throws what it threw. After a job has
// thrown, later ones throw the same without running: their order would no longer be that of the other ranks.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace zeepo {

class Worker;

class Completion {
 public:
  Completion() = default;  // done already
  void wait();

 private:
  friend class Worker;
  struct State {
    bool done = false;
    std::exception_ptr failure;
  };
  Completion(Worker* worker, std::shared_ptr<State> state) : worker_(worker), state_(std::move(state)) {}

  Worker* worker_ = nullptr;
  std::shared_ptr<State> state_;
};

class Worker {
 public:
  Worker();
  // Waits for the jobs given so far.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] Completion run(std::function<void()> job);

 private:
  friend class Completion;
  void work();

  struct Job {
    std::function<void()> f;
    std::shared_ptr<Completion::State> state;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace zeepo
