// What is to be stepped, when it is ready and when it is due.
//
// A piece is ready when its gradients are complete, and the norm too where the step clips. It is due now, where its
// state is on the device; or deferred: before the next use of its unit, in one order for all deferred pieces
// (StatePlan), in which states are read ahead and written behind. Inside a backward pass pieces become ready unit by
// unit and are due at once. Where the device steps offloaded state, the host may step a share of it beside the device.
// All calls come from the rank's thread; what a step needs goes to other threads by value.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "zeepo/zero/gradient_norm.h"
#include "zeepo/zero/gradient_reducer.h"
#include "zeepo/zero/host_stepper.h"
#include "zeepo/zero/piece_buffers.h"
#include "zeepo/zero/state_snapshot.h"
#include "zeepo/zero/weight_stream.h"

namespace zeepo {

// Of one step: its number, from 1 on, skipped ones not counted, and by what rules it is taken.
struct StepContext {
  std::int64_t number = 0;
  StepRules rules = 0.0;
};

class StepQueue {
 public:
  // The rooms that a step uses.
  struct Rooms {
    StateStore& store;
    PieceBuffers& buffers;
    GradientReducer& reducer;
    GradientNorm& norm;
    WeightStream& weights;
    StateSnapshot& snapshot;
  };
  StepQueue(const UnitPlan& units, const StatePlan& plan, const Rooms& rooms);

  // After the backward pass: the unit's pieces that are due now.
  void step_now(std::size_t unit, const StepContext& step);
  // All deferred pieces are ready.
  void ready_all(const StepContext& step);
  // Inside the backward pass: no piece is ready yet; then those of these units are, and what is due is stepped.
  void begin_in_backward(const StepContext& step);
  void ready(const std::vector<std::size_t>& units);

  // Steps what is due before the unit is used.
  void until(std::size_t unit);
  // One unit further than a visit of these needs: what that step sends to the device travels under the visit's compute.
  void ahead_of(const std::vector<std::size_t>& units);
  // Steps all that is ready.
  void finish();
  // The host no longer reads gradients on the device.
  void wait_for_host();

  // Another share stepped by the host, from the next step on. Nothing may be ready.
  void set_host_share(double share);
  double stalled_seconds() const { return stalled_seconds_; }
  // A pass inside of which units were stepped has failed: what it has not come to is not stepped.
  void abandon();
  void outlast() noexcept;

 private:
  void make_host_stepper();
  void step_piece(const PieceId& id, SteppedBy by);
  void step_beside(const PieceId& id);
  void step_deferred(std::size_t end);
  void finish_unit(std::size_t unit);
  std::int64_t passing(std::size_t begin, std::size_t end) const;

  const UnitPlan& names_;
  const StatePlan& plan_;
  Rooms rooms_;
  LowerTiers* lower_;
  Timeline* timeline_;
  double host_share_;
  std::vector<SteppedBy> sides_;  // of plan_.deferred
  std::size_t stepped_;           // of plan_.deferred, in the current step; all of them when it is done
  std::vector<bool> ready_;       // units, inside a backward pass
  StepContext step_;
  std::unique_ptr<HostStepper> host_stepper_;  // where the host may step beside the device
  Completion host_stepped_;                    // of the last piece that it was given
  double stalled_seconds_ = 0;                 // while the host stepped
};

}  // namespace zeepo
