#include "zeepo/train/tuner.h"

#include <utility>

namespace zeepo {

Tuner::Tuner(TuningRange range) : range_(std::move(range)) {
  if (!range_.any()) knob_ = kKnobs;
}

Depths Tuner::depths() const { return {range_.prefetch_bytes[level_[0]], range_.pieces_under_way[level_[1]]}; }

std::size_t Tuner::levels(int knob) const {
  return knob == 0 ? range_.prefetch_bytes.size() : range_.pieces_under_way.size();
}

bool Tuner::after_step(const Measured& measured) {
  if (settled()) return false;
  if (unmeasured_ > 0) {
    --unmeasured_;
    return false;
  }
  const Depths before = depths();
  if (!std::exchange(trying_, false) || measured.stalled_seconds <= kNotable * best_.stalled_seconds)
    best_ = measured;
  else
    --level_[knob_++];
  turn_on();
  unmeasured_ = 1;  // the engine turns to other depths at the end of the next step
  return settled() || depths() != before;
}

void Tuner::turn_on() {
  if (best_.share() < kWorthAShare) knob_ = kKnobs;
  for (; knob_ < kKnobs; ++knob_) {
    if (level_[knob_] + 1 >= levels(knob_)) continue;
    ++level_[knob_];
    trying_ = true;
    return;
  }
}

}  // namespace zeepo
