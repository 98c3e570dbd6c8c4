// Makes a transfer take its time: the simulation of a slow link, for measurements.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace zeepo {

// One user at a time.
class Pace {
 public:
  explicit Pace(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}  // 0: as fast as it goes

  // Returns no earlier than the link would have carried these bytes after what it carried before.
  void take(std::size_t bytes) {
    if (bytes_per_second_ <= 0) return;
    using Seconds = std::chrono::duration<double>;
    const auto time =
        std::chrono::duration_cast<Clock::duration>(Seconds(static_cast<double>(bytes) / bytes_per_second_));
    free_at_ = std::max(free_at_, started_) + time;
    std::this_thread::sleep_until(free_at_);
  }
  // When the transfer began: what the link did not carry before then is not made up for.
  void start() { started_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  double bytes_per_second_;
  Clock::time_point started_, free_at_;
};

}  // namespace zeepo
