#include "zeepo/train/drift_watch.h"

#include <algorithm>
#include <vector>

namespace zeepo {

void DriftWatch::restart() { *this = DriftWatch(); }

Drift DriftWatch::departed(double part) const {
  const double stalls =
      part * std::max(kStallsOfStep * usual_.seconds, kStalls * std::max(usual_.stalled_seconds, 0.0));
  const double more = recent_.stalled_seconds - usual_.stalled_seconds;
  if (more > stalls) return Drift::worse;
  if (-more > stalls) return Drift::better;
  const double longer = recent_.seconds - usual_.seconds;
  if (longer > part * kTime * usual_.seconds) return Drift::worse;
  return -longer > part * kTime * usual_.seconds ? Drift::better : Drift::none;
}

Drift DriftWatch::after(const Measured& measured) {
  window_.push_back(measured);
  if (window_.size() < kWindow) return Drift::none;
  if (window_.size() > kWindow) window_.pop_front();
  recent_ = median(std::vector(window_.begin(), window_.end()));
  if (!knows_usual_) {
    usual_ = recent_;
    knows_usual_ = true;
    return Drift::none;
  }
  if (departed(kNearly) != seen_) times_ = 0;
  if (const Drift now = departed(1); now != Drift::none) {
    if (now != seen_) times_ = 0;
    seen_ = now;
    ++times_;
  }
  return times_ >= kPatience ? seen_ : Drift::none;
}

}  // namespace zeepo
