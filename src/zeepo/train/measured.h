// What steps took, over all ranks, for those who tune them.
#pragma once

#include <span>

#include "zeepo/train/report.h"

namespace zeepo {

// Of one step, or the mean of several.
struct Measured {
  double stalled_seconds = 0, seconds = 0;
  double host_seconds = 0;  // of the stalls, those for host memory
  double share() const { return seconds > 0 ? stalled_seconds / seconds : 0; }
};

// Each number by itself, so that a step that took far longer for once counts no more than any other.
Measured median(std::span<const Measured> steps);

// Collects a rank's steps until there are as many as one measurement is made of. A step that was skipped steps nothing,
// and the next one waits for no update: neither counts.
class StepMeter {
 public:
  void add(const Measured& step, bool skipped);
  int steps() const { return steps_; }
  // The mean; starts anew.
  Measured take();

 private:
  Measured sum_;
  int steps_ = 0;
  bool skipped_ = false;  // the last step
};

}  // namespace zeepo
