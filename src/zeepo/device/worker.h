// A thread that does jobs one after another, beside the compute: collectives, copies.
//
// After a job has thrown, later ones throw the same without running: their order would no longer be that of the other
// ranks.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace zeepo {

class SimulatedTime;

// The promise of one job; wait() returns when the job is done and throws what it threw, once.
//
// A Completion is a handle, as std::shared_future is: it may be copied and kept in lists, owns no memory and may
// outlive its Worker. Its destructor does not wait, because a copy says nothing about who owns the memory that the job
// uses. The rule of life is the memory's: its owner waits for a Completion of every job on it, or lets the Worker
// finish
// (~Worker, LowerTiers::drain), before the memory goes. A job on memory of one scope is held by a WaitingCompletion.
class [[nodiscard]] Completion {
 public:
  Completion() = default;  // done already
  // Of a simulated run: done at `time` of the clock, which wait() sets forward.
  static Completion at(SimulatedTime& clock, double time);
  void wait();
  bool done() const;
  // When a completion of a simulated run is done; of others, 0.
  double simulated_end() const { return state_ ? state_->end : 0; }

 private:
  friend class Worker;
  // Shared by a worker and the completions of its jobs.
  struct Signal {
    std::mutex mutex;
    std::condition_variable changed;
  };
  struct State {
    std::shared_ptr<Signal> signal;
    bool done = false;
    std::exception_ptr failure;
    SimulatedTime* clock = nullptr;
    double end = 0;
  };
  explicit Completion(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// Owns the end of a job on memory that lives in the same scope: the destructor waits, so that the memory is never freed
// under the job. It does not throw; who wants to know of a failure calls wait().
class [[nodiscard]] WaitingCompletion {
 public:
  WaitingCompletion() = default;
  explicit WaitingCompletion(Completion completion) : completion_(std::move(completion)) {}
  WaitingCompletion(WaitingCompletion&& other) noexcept : completion_(std::exchange(other.completion_, {})) {}
  WaitingCompletion& operator=(WaitingCompletion&& other) noexcept;  // waits for what it held
  ~WaitingCompletion() { wait_silently(); }

  void wait() { completion_.wait(); }
  // For LowerTiers::wait, which counts the time.
  Completion& handle() { return completion_; }

 private:
  void wait_silently() noexcept;

  Completion completion_;
};

class Worker {
 public:
  Worker();  // throws Error when the system refuses a thread
  // Waits for the jobs given so far.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Completion run(std::function<void()> job);

 private:
  void work();

  struct Job {
    std::function<void()> f;
    std::shared_ptr<Completion::State> state;
  };
  const std::shared_ptr<Completion::Signal> signal_ = std::make_shared<Completion::Signal>();
  std::deque<Job> jobs_;
  std::exception_ptr failure_;
  bool stopping_ = false;
  std::thread thread_;
};

// A Worker whose thread starts with its first job. Used from one thread.
class WorkerOnDemand {
 public:
  Completion run(std::function<void()> job) {
    if (!worker_) worker_ = std::make_unique<Worker>();
    return worker_->run(std::move(job));
  }
  // Waits until all jobs given so far are done; throws what one of them threw.
  void drain() {
    if (worker_) worker_->run([] {}).wait();
  }

 private:
  std::unique_ptr<Worker> worker_;
};

}  // namespace zeepo
