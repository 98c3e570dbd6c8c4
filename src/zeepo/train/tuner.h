// Finds in the first steps how much the host should step and how far transfers should run ahead, from what the compute
// has waited.
//
// One knob after the other is turned up a level as long as that makes the steps wait notably less, or, where the host
// steps, take less time; then back to the last level that did. After the last knob nothing changes any more. Pure:
// ranks that are told the same decide the same, and only the host's share that they turn to may differ. No knob changes
// what is computed.
#pragma once

#include <cstdint>
#include <vector>

#include "zeepo/zero/engine.h"

namespace zeepo {

// Levels that are planned for, the first one in force; nothing to turn where there is only one.
struct TuningRange {
  std::vector<std::int64_t> prefetch_bytes;
  std::vector<int> pieces_under_way;
  std::vector<double> host_shares = {0};
  bool any() const { return prefetch_bytes.size() > 1 || pieces_under_way.size() > 1 || host_shares.size() > 1; }
};

class Tuner {
 public:
  // Of one step, over all ranks.
  struct Measured {
    double stalled_seconds, seconds;
    double host_seconds = 0;  // of the stalls, those for host memory
    bool skipped = false;     // an overflow: nothing is stepped
    double share() const { return seconds > 0 ? stalled_seconds / seconds : 0; }
  };
  static constexpr double kWorthAShare = 0.01;  // stalls below this part of a step are left alone
  static constexpr double kNotable = 0.95;      // a level is kept when stalls fall to this part, or lower; ...
  static constexpr double kFaster = 0.99;       // ... of the host's share, when the step's time does

  explicit Tuner(TuningRange range);

  Depths depths() const;
  bool settled() const { return knob_ == kKnobs; }
  bool tunes_host_share() const { return range_.host_shares.size() > 1; }
  // What the level of the host's share that has not been tried yet stands for, on this rank.
  void propose_host_share(double share);
  // After each step; true when depths() are others now, or settled.
  bool after_step(const Measured& measured);
  // Of the level in force.
  const Measured& measured() const { return best_; }

 private:
  enum Knob { kHostShare, kPrefetch, kPieces, kKnobs };
  std::size_t levels(int knob) const;
  bool helps(const Measured& measured) const;
  void turn_on();

  TuningRange range_;
  std::size_t level_[kKnobs] = {};
  int knob_ = kHostShare;
  bool trying_ = false;   // the level in force is new
  int unmeasured_ = 2;    // steps: the first is recorded, the next starts to run ahead
  bool skipped_ = false;  // the last step
  Measured best_{};
};

}  // namespace zeepo
