#include "zeepo/train/tuner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {

Tuner::Tuner(TuningRange range) : range_(std::move(range)) {
  if (!range_.any()) phase_ = Phase::watching;
}

void Tuner::start_at(const Depths& depths) {
  const auto highest = [](const auto& levels, auto wanted) {
    std::size_t level = 0;
    while (level + 1 < levels.size() && levels[level + 1] <= wanted) ++level;
    return level;
  };
  level_[kPrefetch] = highest(range_.prefetch_bytes, depths.prefetch_bytes);
  level_[kPieces] = highest(range_.pieces_under_way, depths.pieces_under_way);
  if (tunes_host_share() && depths.host_share > range_.host_shares.front()) {
    range_.host_shares.back() = std::min(range_.host_shares.back(), depths.host_share);
    level_[kHostShare] = range_.host_shares.size() - 1;
  }
}

Depths Tuner::depths() const {
  return {range_.prefetch_bytes[level_[kPrefetch]], range_.pieces_under_way[level_[kPieces]],
          range_.host_shares[level_[kHostShare]]};
}

std::size_t Tuner::levels(int knob) const {
  if (knob == kHostShare) return range_.host_shares.size();
  return knob == kPrefetch ? range_.prefetch_bytes.size() : range_.pieces_under_way.size();
}

std::string Tuner::level_text(int knob) const {
  const Depths now = depths();
  if (knob == kHostShare) return fmt::format("{:.0f}% stepped by the host", 100 * now.host_share);
  if (knob == kPrefetch) return fmt::format("prefetch {}", format_size(now.prefetch_bytes));
  return fmt::format("{} pieces under way", now.pieces_under_way);
}

std::string Tuner::share_text() const { return fmt::format("{:.1f}% of a step waits", 100 * best_.share()); }

bool Tuner::waits_for_host() const { return best_.host_seconds >= kWorthAShare * best_.seconds; }

void Tuner::propose_host_share(double share) {
  if (level_[kHostShare] + 1 < range_.host_shares.size()) range_.host_shares.back() = share;
}

bool Tuner::after(const Measured& measured) {
  if (!range_.any()) return false;
  if (unmeasured_ > 0) {
    --unmeasured_;
    return false;
  }
  const bool was_settled = settled();
  const auto before = level_;  // other levels may be the same depths on this rank, and not on others
  if (phase_ == Phase::climbing)
    climb(measured);
  else if (phase_ == Phase::watching)
    watch(measured);
  else
    search(measured);
  if (level_ == before && settled() == was_settled) return false;
  // The engine takes other depths at the end of the next step; with other pieces its buffers start empty then.
  unmeasured_ = level_[kHostShare] == before[kHostShare] ? 1 : 2;
  return true;
}

void Tuner::climb(const Measured& measured) {
  why_.clear();
  if (std::exchange(trying_, false)) {
    gain_ = 1 - measured.seconds / best_.seconds;
    const bool helps = knob_ == kHostShare ? measured.seconds <= kFaster * best_.seconds
                                           : measured.stalled_seconds <= kNotable * best_.stalled_seconds;
    why_ = fmt::format("{} {}; ", level_text(knob_), helps ? "helps" : "does not help");
    if (helps)
      best_ = measured;
    else
      --level_[knob_++];
  } else {
    best_ = measured;
  }
  climb_on();
}

void Tuner::climb_on() {
  if (best_.share() < kWorthAShare) knob_ = kKnobs;
  if (knob_ == kHostShare && !waits_for_host()) ++knob_;
  for (; knob_ < kKnobs; ++knob_) {
    if (level_[knob_] + 1 >= levels(knob_)) continue;
    ++level_[knob_];
    trying_ = true;
    why_ += fmt::format("{}: trying {}", share_text(), level_text(knob_));
    return;
  }
  settle(why_ + fmt::format("{}: settled", share_text()));
}

void Tuner::settle(const std::string& why) {
  phase_ = Phase::watching;
  watch_.restart();
  why_ = why;
}

void Tuner::watch(const Measured& measured) {
  const Drift drift = watch_.after(measured);
  if (pause_left_ > 0) {
    --pause_left_;
    return;
  }
  if (drift == Drift::none) return;
  best_ = watch_.recent();
  for (int knob = 0; knob < kKnobs; ++knob) {
    if (drift == Drift::worse) moves_.push_back({knob, 1});
    moves_.push_back({knob, -1});
  }
  kept_ = false;
  gain_ = 0;
  phase_ = Phase::searching;
  const Measured& usual = watch_.usual();
  why_ = fmt::format("a step waits {:.1f}% and takes {:.3g} of its usual time, after {:.1f}%; ", 100 * best_.share(),
                     best_.seconds / usual.seconds, 100 * usual.share());
  try_next();  // where there is nothing to try, what is new becomes usual
}

bool Tuner::can(const Move& move) const {
  if (move.levels < 0) return level_[move.knob] > 0;
  // Only what waits can wait less.
  if (best_.share() < kWorthAShare || (move.knob == kHostShare && !waits_for_host())) return false;
  return level_[move.knob] + 1 < levels(move.knob);
}

void Tuner::turn(int knob, int levels) {
  level_[knob] = static_cast<std::size_t>(static_cast<int>(level_[knob]) + levels);
}

void Tuner::try_next() {
  while (!moves_.empty() && !can(moves_.front())) moves_.pop_front();
  if (!moves_.empty()) {
    turn(moves_.front().knob, moves_.front().levels);
    why_ += "trying " + level_text(moves_.front().knob);
    return;
  }
  pause_ = kept_ ? kFirstPause : std::min(2 * pause_, kLongestPause);
  pause_left_ = pause_;
  settle(why_ + "settled");
}

bool Tuner::better(const Measured& tried, const Measured& before) {
  const bool waits_less =
      before.share() >= kWorthAShare && tried.stalled_seconds <= kFewerStalls * before.stalled_seconds;
  return tried.seconds <= kGain * before.seconds || (waits_less && tried.seconds <= before.seconds);
}

void Tuner::search(const Measured& measured) {
  trial_.push_back(measured);
  if (trial_.size() < kTrialSteps) return;
  const Measured tried = median(std::exchange(trial_, {}));
  if (confirming_) return confirm(tried);
  const Move move = moves_.front();
  gain_ = 1 - tried.seconds / best_.seconds;
  const std::string result = fmt::format("{}: steps {:.1f}% {}", level_text(move.knob), 100 * std::abs(gain_),
                                         gain_ >= 0 ? "faster" : "slower");
  turn(move.knob, -move.levels);
  confirming_ = better(tried, best_);
  if (confirming_) {
    promising_ = tried;
    why_ = fmt::format("{}; measuring {} again", result, level_text(move.knob));
    return;
  }
  moves_.pop_front();
  why_ = result + ", undone; ";
  try_next();
}

// The level before, measured once more: the machine may have changed by itself while the new one was tried.
void Tuner::confirm(const Measured& again) {
  confirming_ = false;
  const Move move = moves_.front();
  gain_ = 1 - promising_.seconds / again.seconds;
  if (better(promising_, again)) {
    kept_ = true;
    best_ = promising_;
    turn(move.knob, move.levels);
    // The other way is where this came from.
    if (moves_.size() > 1 && moves_[1].knob == move.knob) moves_.erase(moves_.begin() + 1);
    why_ = fmt::format("{}: steps {:.1f}% faster, kept; ", level_text(move.knob), 100 * gain_);
  } else {
    best_ = again;
    moves_.pop_front();
    why_ = fmt::format("{}: steps have become as fast by themselves; ", level_text(move.knob));
  }
  try_next();
}

}  // namespace zeepo
