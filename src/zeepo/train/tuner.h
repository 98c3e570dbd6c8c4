// Finds how much the host should step and how far transfers should run ahead, from what the compute has waited; and
// goes on looking for as long as the run lasts.
//
// In the first steps one knob after the other is turned up a level as long as that makes the steps wait notably less,
// or, where the host steps, take less time; then back to the last level that did. The run has settled then, and is only
// watched. When its steps have come to wait notably more or less, for long, levels are tried again: up, then down; each
// for some steps. A level that made steps notably faster than the one before, which is measured again then, is kept;
// any other is undone. The longer nothing has helped, the longer the run is left alone. Pure: ranks that are told the
// same decide the same, and only the host's share that they choose may differ. No knob changes what is computed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "zeepo/train/drift_watch.h"
#include "zeepo/zero/engine_options.h"

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
  static constexpr double kWorthAShare = 0.01;  // stalls below this part of a step are left alone
  // In the first steps a level is kept when stalls fall to this part, or lower; ...
  static constexpr double kNotable = 0.95;
  static constexpr double kFaster = 0.99;  // ... of the host's share, when the step's time does.
  // Later when the step's time falls to this part over kTrialSteps, or stalls do and steps take no longer.
  static constexpr double kGain = 0.97, kFewerStalls = 0.9;
  static constexpr std::size_t kTrialSteps = 8;
  static constexpr int kWatchedSteps = 4;  // of a settled run, that one measurement is the mean of
  // Measurements between two searches that found nothing: doubled each time.
  static constexpr int kFirstPause = 8, kLongestPause = 512;

  explicit Tuner(TuningRange range);
  // Before the first measurement: climbs from these depths on, or from the levels closest below them.
  void start_at(const Depths& depths);

  Depths depths() const;
  // Nothing is being tried.
  bool settled() const { return phase_ == Phase::watching; }
  bool tunes_host_share() const { return range_.host_shares.size() > 1; }
  // Steps that the next measurement is to be the mean of.
  int steps_to_measure() const { return settled() ? kWatchedSteps : 1; }
  // What the level of the host's share that has not been tried yet stands for, on this rank.
  void propose_host_share(double share);
  // After each measurement; true when other levels are in force now, or none is being tried any more.
  bool after(const Measured& measured);

  // Of the level in force, when it was last measured by itself.
  const Measured& measured() const { return best_; }
  // Of the last change: its reason, and the part of a step's time that the last trial has gained (or lost, below 0).
  const std::string& why() const { return why_; }
  double gain() const { return gain_; }

 private:
  enum Knob { kHostShare, kPrefetch, kPieces, kKnobs };
  enum class Phase { climbing, watching, searching };
  struct Move {
    int knob, levels;  // 1 up, -1 down
  };

  std::size_t levels(int knob) const;
  std::string level_text(int knob) const;
  std::string share_text() const;
  bool waits_for_host() const;
  // The first steps.
  void climb(const Measured& measured);
  void climb_on();
  // Later.
  void watch(const Measured& measured);
  void search(const Measured& measured);
  void confirm(const Measured& again);
  static bool better(const Measured& tried, const Measured& before);
  bool can(const Move& move) const;
  void turn(int knob, int levels);
  void try_next();
  void settle(const std::string& why);

  TuningRange range_;
  std::array<std::size_t, kKnobs> level_ = {};
  Phase phase_ = Phase::climbing;
  int knob_ = kHostShare;  // that is being climbed
  bool trying_ = false;    // the level in force is new
  int unmeasured_ = 2;     // steps: the first is recorded, the next starts to run ahead
  Measured best_;
  std::string why_;
  double gain_ = 0;
  DriftWatch watch_;
  std::deque<Move> moves_;       // to be tried, the one in force first
  std::vector<Measured> trial_;  // of the level in force
  bool confirming_ = false;      // the level in force is the one before what was tried ...
  Measured promising_;           // ... with this result
  bool kept_ = false;            // something, in this search
  int pause_ = kFirstPause, pause_left_ = 0;
};

}  // namespace zeepo
