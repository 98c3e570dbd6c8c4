#include "zeepo/io/throttled/throttled_engine.h"

#include <algorithm>
#include <thread>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;

struct ThrottledPending final : IoCompletion::Pending {
  ThrottledPending(IoCompletion completion, Clock::time_point arrival) : inner(std::move(completion)), at(arrival) {}
  void wait() override {
    inner.wait();
    std::this_thread::sleep_until(at);
  }
  bool done() const override { return inner.done() && Clock::now() >= at; }
  IoCompletion inner;
  Clock::time_point at;
};

}  // namespace

ThrottledEngine::ThrottledEngine(IoEngine& inner, double bytes_per_second)
    : inner_(inner), bytes_per_second_(bytes_per_second) {
  if (!(bytes_per_second > 0)) throw Error("throttled disk: {} bytes a second: must be more than 0", bytes_per_second);
}

std::string ThrottledEngine::name() const {
  return fmt::format("{}, throttled to {:g} MB/s", inner_.name(), bytes_per_second_ / 1e6);
}

IoCompletion ThrottledEngine::submit(IoDirection direction, std::span<const IoTransfer> transfers) {
  double bytes = 0;
  for (const IoTransfer& transfer : transfers) bytes += static_cast<double>(transfer.memory.size());
  const auto time =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(bytes / bytes_per_second_));
  Clock::time_point arrival;
  {
    const std::lock_guard lock(mutex_);
    arrival = link_free_ = std::max(link_free_, Clock::now()) + time;
  }
  return IoCompletion(std::make_unique<ThrottledPending>(inner_.submit(direction, transfers), arrival));
}

}  // namespace zeepo
