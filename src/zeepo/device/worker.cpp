#include "zeepo/device/worker.h"

namespace zeepo {

void Completion::wait() {
  if (!state_) return;
  {
    std::unique_lock lock(worker_->mutex_);
    worker_->changed_.wait(lock, [this] { return state_->done; });
  }
  const auto state = std::move(state_);
  if (state->failure) std::rethrow_exception(state->failure);
}

Worker::Worker() : thread_([this] { work(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Completion Worker::run(std::function<void()> job) {
  auto state = std::make_shared<Completion::State>();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(job), state});
  }
  changed_.notify_all();
  return Completion(this, std::move(state));
}

void Worker::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    std::exception_ptr failure = failure_;
    if (!failure) {
      lock.unlock();
      try {
        job.f();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = failure;
    }
    job.state->failure = failure;
    job.state->done = true;
    changed_.notify_all();
  }
}

}  // namespace zeepo
