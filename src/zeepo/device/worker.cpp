#include "zeepo/device/worker.h"

#include <utility>

#include "zeepo/base/start_thread.h"
#include "zeepo/device/simulated_time.h"

namespace zeepo {

Completion Completion::at(SimulatedTime& clock, double time) {
  auto state = std::make_shared<State>();
  state->clock = &clock;
  state->end = time;
  return Completion(std::move(state));
}

void Completion::wait() {
  if (!state_) return;
  if (state_->clock != nullptr) {
    state_->clock->wait_until(state_->end);
    state_ = nullptr;
    return;
  }
  {
    std::unique_lock lock(state_->signal->mutex);
    state_->signal->changed.wait(lock, [this] { return state_->done; });
  }
  const auto state = std::move(state_);
  if (state->failure) std::rethrow_exception(state->failure);
}

bool Completion::done() const {
  if (!state_) return true;
  if (state_->clock != nullptr) return state_->clock->now() >= state_->end;
  const std::lock_guard lock(state_->signal->mutex);
  return state_->done;
}

WaitingCompletion& WaitingCompletion::operator=(WaitingCompletion&& other) noexcept {
  if (this == &other) return *this;
  wait_silently();
  completion_ = std::exchange(other.completion_, {});
  return *this;
}

void WaitingCompletion::wait_silently() noexcept {
  try {
    completion_.wait();
  } catch (...) {  // documented: who wants to know has waited
  }
}

Worker::Worker() : thread_(start_thread("transfers and collectives", [this] { work(); })) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(signal_->mutex);
    stopping_ = true;
  }
  signal_->changed.notify_all();
  thread_.join();
}

Completion Worker::run(std::function<void()> job) {
  auto state = std::make_shared<Completion::State>();
  state->signal = signal_;
  {
    const std::lock_guard lock(signal_->mutex);
    jobs_.push_back({std::move(job), state});
  }
  signal_->changed.notify_all();
  return Completion(std::move(state));
}

void Worker::work() {
  std::unique_lock lock(signal_->mutex);
  for (;;) {
    signal_->changed.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
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
    signal_->changed.notify_all();
  }
}

}  // namespace zeepo
