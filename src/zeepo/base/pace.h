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

  double bytes_per_second() const { return bytes_per_second_; }
  // When the link will have carried these bytes, after what it was given before. The transfer began at `started`: what
  // the link did not carry before then is not made up for.
  Clock::time_point arrival(std::size_t bytes, Clock::time_point started) {
    if (bytes_per_second_ <= 0) return started;
    using Seconds = std::chrono::duration<double>;
    const auto time =
        std::chrono::duration_cast<Clock::duration>(Seconds(static_cast<double>(bytes) / bytes_per_second_));
    const std::lock_guard lock(mutex_);
    return free_at_ = std::max(free_at_, started) + time;
  }
  // Returns no earlier.
  void take(std::size_t bytes, Clock::time_point started) { std::this_thread::sleep_until(arrival(bytes, started)); }

 private:
  const double bytes_per_second_;
  std::mutex mutex_;
  Clock::time_point free_at_;
};

}  // namespace zeepo
