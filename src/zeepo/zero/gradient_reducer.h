// Gradients on their way: from the ops into a unit's flat buffer, reduced over the ranks onto the sum in this rank's
// shard, kept where the plan says.
//
// A micro-step begins; ops ask where to write; the engine closes a unit when its last visit is over and starts its
// reduction, which runs beside the compute. At most two reductions are on their way, each finished in two calls, so
// that steps may run in between: wait_for_oldest(), keep_oldest(). A unit whose gradients are complete, and have come
// to where they are stepped, is in take_complete().
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "zeepo/kernels/matmul.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/gradient_norm.h"
#include "zeepo/zero/state_store.h"

namespace zeepo {

// Where an op writes a parameter's gradient: all of it, overwriting or adding.
struct GradientTarget {
  Tensor tensor;  // of the training dtype, or fp32
  Write write;
};

class GradientReducer {
 public:
  GradientReducer(const UnitPlan& units, const StatePlan& plan, StateStore& store, GradientNorm& norm,
                  Collectives& collectives);

  void begin(const MicroStep& micro_step);
  // Throws Error when the unit is closed already.
  GradientTarget target(const ParameterId& id);
  // No more gradients come for the unit. Whether there is something to reduce now: not where the unit is not trained,
  // was closed before, or only adds to this rank's own sum.
  bool close(std::size_t unit);
  bool has_room_for(std::size_t unit) const;  // else finish the oldest first: memory is bounded
  void start(std::size_t unit);

  bool under_way() const { return !reductions_.empty(); }
  void wait_for_oldest();
  void keep_oldest();
  // Gradients that go down to a lower tier have left.
  void finish_leaving();
  bool leaving() const { return !leaving_.empty(); }
  // Units to be stepped in the backward pass, in the order of their reductions, once what they wait for has left.
  std::vector<std::size_t> take_complete();
  void end();

  // Stage 0: starts gathering the sums that the backward pass has left to the next forward pass, in its order.
  void gather_rest();
  void wait_for_gathered(std::size_t unit) { collectives_.wait(units_[unit].gathering); }
  // What codes have lost of earlier gradients is not added to later ones.
  void forget_lost();
  void settle();
  void abandon();
  void outlast() noexcept;

 private:
  struct UnitGradients {
    Tensor pending;               // of this micro-step, not yet reduced; or the sum itself
    std::vector<bool> written;    // by parameter
    bool closed = false;          // in this micro-step
    PendingCollective gathering;  // of all ranks' sums, at stage 0
    Tensor lost;                  // by codes, and added to the next gradients: of all of the unit
  };
  // On its way, and the memory it works on.
  struct Reduction {
    std::size_t unit = 0;
    PendingCollective done = {};
    Tensor pending, scratch, sum;
    std::vector<Completion> sum_arriving = {};
  };
  void clear_padding(std::size_t unit, const Tensor& flat) const;
  bool add_to_local_sum(std::size_t unit);
  Tensor scratch_to_share(std::size_t unit) const;
  Tensor sum_of(std::size_t unit, const Tensor& pending) const;
  // Whether the sum goes on from earlier micro-steps, and whether this micro-step finishes and rounds it.
  bool adds_to_sum() const { return plan_.options.accumulation > 1 && !micro_step_.first() && !plan_.sums_locally(); }
  bool rounds_sum() const { return adds_to_sum() && micro_step_.last() && !plan_.ops_add_to_sums(); }
  bool is_coded(std::size_t unit) const { return plan_.units[unit].reduced_as != WireType::same; }
  void add_own(Reduction& reduction);
  void gather(std::size_t unit);

  const UnitPlan& names_;
  const StatePlan& plan_;
  StateStore& store_;
  GradientNorm& norm_;
  Collectives& collectives_;
  MicroStep micro_step_;
  std::vector<UnitGradients> units_;
  std::deque<Reduction> reductions_;
  std::vector<StateStore::Leaving> leaving_;
  // Units whose sums are reduced, but not sent to the other ranks: behind the next reduction, or after the backward
  // pass.
  std::vector<std::size_t> to_gather_next_, to_gather_;
  std::vector<std::size_t> complete_;
};

}  // namespace zeepo
