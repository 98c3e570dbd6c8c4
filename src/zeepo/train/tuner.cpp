#include "zeepo/train/tuner.h"

#include <utility>

namespace zeepo {

Tuner::Tuner(TuningRange range) : range_(std::move(range)) {
  if (!range_.any()) knob_ = kKnobs;
}

Depths Tuner::depths() const {
  return {range_.prefetch_bytes[level_[kPrefetch]], range_.pieces_under_way[level_[kPieces]],
          range_.host_shares[level_[kHostShare]]};
}

std::size_t Tuner::levels(int knob) const {
  if (knob == kHostShare) return range_.host_shares.size();
  return knob == kPrefetch ? range_.prefetch_bytes.size() : range_.pieces_under_way.size();
}

bool Tuner::helps(const Measured& measured) const {
  if (knob_ == kHostShare) return measured.seconds <= kFaster * best_.seconds;
  return measured.stalled_seconds <= kNotable * best_.stalled_seconds;
}

void Tuner::propose_host_share(double share) {
  if (level_[kHostShare] + 1 < range_.host_shares.size()) range_.host_shares.back() = share;
}

bool Tuner::after_step(const Measured& measured) {
  if (settled()) return false;
  // After a step that was skipped the next one waits for no update: neither tells how long steps take.
  const bool after_skip = std::exchange(skipped_, measured.skipped);
  if (skipped_ || after_skip) return false;
  if (unmeasured_ > 0) {
    --unmeasured_;
    return false;
  }
  const Depths before = depths();
  const std::size_t host_level = level_[kHostShare];
  if (!std::exchange(trying_, false) || helps(measured))
    best_ = measured;
  else
    --level_[knob_++];
  turn_on();
  // The engine turns to other depths at the end of the next step; with other pieces its buffers start empty then.
  unmeasured_ = level_[kHostShare] == host_level ? 1 : 2;
  return settled() || depths() != before;
}

void Tuner::turn_on() {
  if (best_.share() < kWorthAShare) knob_ = kKnobs;
  const bool waits_for_host = best_.host_seconds >= kWorthAShare * best_.seconds;
  if (knob_ == kHostShare && !waits_for_host) ++knob_;
  for (; knob_ < kKnobs; ++knob_) {
    if (level_[knob_] + 1 >= levels(knob_)) continue;
    ++level_[knob_];
    trying_ = true;
    return;
  }
}

}  // namespace zeepo
