// Notices when steps have come to wait more, or less, than they used to, and for long. Pure.
//
// What is usual is the median of the first measurements; what is recent, that of the last ones. One slow step changes
// neither. A drift must last: kPatience measurements in a row, and what has begun to count stops only when the recent
// steps are nearly as usual again.
#pragma once

#include <deque>

#include "zeepo/train/measured.h"

namespace zeepo {

enum class Drift { none, worse, better };

class DriftWatch {
 public:
  static constexpr std::size_t kWindow = 5;  // measurements that a median is of
  static constexpr int kPatience = 6;
  static constexpr double kStallsOfStep = 0.05;  // notable: stalls that grow or fall by this part of a usual step, ...
  static constexpr double kStalls = 0.2;         // ... and of the usual stalls;
  static constexpr double kTime = 0.15;          // or a step's time by this part of it
  static constexpr double kNearly = 0.5;         // as usual again: within this part of what is notable

  Drift after(const Measured& measured);
  // What comes next is usual.
  void restart();

  const Measured& usual() const { return usual_; }
  const Measured& recent() const { return recent_; }

 private:
  // More than `part` of what is notable.
  Drift departed(double part) const;

  std::deque<Measured> window_;
  bool knows_usual_ = false;
  Measured usual_, recent_;
  Drift seen_ = Drift::none;
  int times_ = 0;  // in a row
};

}  // namespace zeepo
