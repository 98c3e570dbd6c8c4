#include "zeepo/io/throttled/throttled_engine.h"

#include <thread>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

using Clock = Pace::Clock;

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

ThrottledEngine::ThrottledEngine(IoEngine& inner, double bytes_per_second) : inner_(inner), pace_(bytes_per_second) {
  if (!(bytes_per_second > 0)) throw Error("throttled disk: {} bytes a second: must be more than 0", bytes_per_second);
}

std::string ThrottledEngine::name() const {
  return fmt::format("{}, throttled to {:g} MB/s", inner_.name(), pace_.bytes_per_second() / 1e6);
}

IoCompletion ThrottledEngine::submit(IoDirection direction, std::span<const IoTransfer> transfers) {
  std::size_t bytes = 0;
  for (const IoTransfer& transfer : transfers) bytes += transfer.memory.size();
  const auto arrival = pace_.arrival(bytes, Clock::now());
  return IoCompletion(std::make_unique<ThrottledPending>(inner_.submit(direction, transfers), arrival));
}

}  // namespace zeepo
