// Makes transfers take their time: the simulation of a slow link, for measurements.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

namespace zeepo {

// One link, whichever threads use it.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Pace(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: as fast as it goes

  // Returns no earlier than the link would have carried these bytes after what it carried before. The transfer began at
  // `started`: what the link did not carry before then is not made up for.
  void take(std::size_t bytes, Clock::time_point started) {
    if (bytes_per_second_ <= 0) return;
    using Seconds = std::chrono::duration<double>;
    const auto time =
        std::chrono::duration_cast<Clock::duration>(Seconds(static_cast<double>(bytes) / bytes_per_second_));
    std::unique_lock lock(mutex_);
    const Clock::time_point done = free_at_ = std::max(free_at_, started) + time;
    lock.unlock();
    std::this_thread::sleep_until(done);
  }

 private:
  const double bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point free_at_;
};

}  // namespace zeepo
