// What a rank keeps of every unit, where, and who steps it when: pure data, made by a pure function of the units, the
// options and the rank's place among the ranks.
//
// Every room of the engine reads the plan; none changes it. The plan can be made for any rank of any number of ranks
// without launching them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "zeepo/schedule/pass_planner.h"
#include "zeepo/zero/engine_options.h"
#include "zeepo/zero/shard.h"
#include "zeepo/zero/state_layout.h"
#include "zeepo/zero/stored_form.h"
#include "zeepo/zero/unit.h"

namespace zeepo {

// A rank's place among the ranks. alone: there are no others, and collectives are left out.
struct RankPlace {
  int rank = 0, size = 1;
  bool alone = true;
};

struct PieceId {
  std::size_t unit, piece;
  friend bool operator==(const PieceId&, const PieceId&) = default;
};

// A part of what this rank steps, whose optimizer state lives in one place.
struct PiecePlan {
  Extent extent;  // of the unit
  Place place = Place::device;
  StateLayout layout = {};                           // holds a copy of weights that live across the host link
  SteppedBy stepped_by = SteppedBy::device_at_once;  // deal_sides() may give the host a part of what is the device's
  bool keeps_gradients = false;                      // in a buffer of the piece's own, where the piece lives
};

// Where the reduced gradients of a unit are until they are stepped.
enum class GradientsKept {
  until_stepped,  // as they come out of the reduction
  whole,          // on the device: those of all ranks
  shard,          // on the device: this rank's
  in_pieces,      // each piece's where the piece lives
};

// Consecutive parameters that are stepped together, the padding between them too: padding is zero and stays zero.
struct StepRange {
  Extent extent;
  bool decays;
  std::size_t group = 0;
};

struct UnitStates {
  Extent whole, own;  // own: this rank's shard
  Extent stepped;     // what this rank steps: where this rank has the optimizer's state
  bool trained = false;
  bool visited = false;  // by any visit; else the unit is always there
  Place params_place = Place::device;
  bool params_whole = false;     // kept between uses, not gathered for each
  bool in_others_files = false;  // and read from there: no tier keeps them
  StoredForm form = {};          // of this rank's shard, where weights are coded
  // How ranks send the unit's weights and gradients. Units that always stay whole are small, and sent exactly.
  WireType gathered_as = WireType::same, reduced_as = WireType::same;
  GradientsKept gradients = GradientsKept::until_stepped;
  bool sums_locally = false;      // an fp32 sum of this rank's micro-steps is kept, and reduced last
  std::vector<PiecePlan> pieces;  // of `stepped`, in order
  std::vector<StepRange> ranges;  // of all trainable parameters
  std::int64_t first_weight = 0;  // of the unit, among all of the model

  bool params_offloaded() const { return params_place != Place::device; }
  // Whole weights as the ranks' messages tell them, beside this rank's exact shard.
  bool decoded_apart() const { return params_whole && gathered_as != WireType::same; }
  // The piece that holds the state of `range`, which lies in one; nothing where the unit is not trained.
  std::optional<std::size_t> piece_with(const Extent& range) const;
};

struct StatePlan {
  EngineOptions options;
  RankPlace ranks;
  StepPhase phase = StepPhase::after_backward;  // as it will be: see StepPhase
  std::vector<UnitStates> units = {};
  // Deferred pieces in the order in which they are stepped: that of the next forward pass; or the order of the backward
  // pass when stepping inside it.
  std::vector<PieceId> deferred = {};
  std::vector<std::size_t> deferred_end = {};  // of each unit: what of `deferred` is stepped before the unit's next use
  std::int64_t cache_bytes = 0;                // of parameters that stay gathered, with CachePolicy::lru

  DType gradient_dtype() const { return options.accumulation > 1 ? DType::f32 : options.dtype; }
  bool steps_on_device() const { return options.step_below_on == StepSide::device; }
  bool steps_in_backward() const { return phase == StepPhase::in_backward; }
  bool shards_params() const { return options.stage == 3 || !options.placement.params.on_device(); }
  // Stage 0 steps every weight on every rank, and gathers the other ranks' gradient sums for that.
  bool steps_whole() const { return options.stage == 0 && options.placement.optimizer.on_device() && !shards_params(); }
  bool gathers_gradients() const { return steps_whole() && !ranks.alone; }
  bool sums_locally() const { return options.reduce == Reduce::last && options.accumulation > 1; }
  bool ops_add_to_sums() const {
    return options.sum_order == SumOrder::local && options.accumulation > 1 && !sums_locally() && ranks.alone;
  }
  // Stages 0 and 1 keep a unit's gradients whole, and a rank alone has nothing to cut: ops then write where the reduced
  // gradients will be. With accumulation the sum is fp32 and stands apart, but for ops that add to it.
  bool reduces_in_place() const {
    return ops_add_to_sums() || (options.accumulation == 1 && (options.stage < 2 || ranks.alone));
  }
  // Where the weights are gathered again before they are stepped, from a copy in the node.
  bool keeps_node_copy(std::size_t unit) const { return options.wire.node_copy && !units[unit].params_whole; }
  bool keeps_gradients() const { return !steps_in_backward() || options.accumulation > 1; }
  std::int64_t gathered_bytes(std::size_t unit) const {
    return units[unit].whole.elements() * static_cast<std::int64_t>(size_of(options.dtype));
  }
  // Of the unit while it is fetched, before a visit uses it.
  std::int64_t fetched_bytes(std::size_t unit) const {
    const StoredForm& form = units[unit].form;
    return form.coded() ? static_cast<std::int64_t>(form.bytes()) * ranks.size : gathered_bytes(unit);
  }
  // Whether every unit is where it is used, as values or as codes: passes bring none.
  bool fetches_nothing() const {
    return std::ranges::all_of(units, [&](const UnitStates& unit) {
      return unit.params_whole || (unit.form.coded() && !unit.params_offloaded() && ranks.alone);
    });
  }
  const PiecePlan& piece(const PieceId& id) const { return units[id.unit].pieces[id.piece]; }
  bool any_deferred(std::size_t unit) const;
  // Byte offset of elements in this rank's shard of the parameters.
  std::size_t param_offset(std::size_t unit, const Extent& extent) const {
    return static_cast<std::size_t>(extent.begin - units[unit].own.begin) * size_of(options.dtype);
  }
};

// Throws Error where the options are not to be had.
StatePlan plan_states(const UnitPlan& units, const EngineOptions& options, const RankPlace& ranks);

PassPlanner::Options pass_options(const UnitPlan& units, const StatePlan& plan);

// Whether the host can step the piece beside a device that steps other pieces.
bool host_may_step(const StatePlan& plan, const PieceId& id);
// Who steps each of plan.deferred when the host steps this share beside the device. At every point of a pass both sides
// have had their share, so that both have work all the time.
std::vector<SteppedBy> deal_sides(const StatePlan& plan, double host_share);

// What of a piece passes through a buffer on the way to where the piece is stepped, and where in the buffer. Pieces
// that the host steps in host memory need none.
struct SlotParts {
  struct Part {
    std::size_t offset, bytes;  // of the block where the part lives
    std::size_t at;             // in the buffer
  };
  std::optional<Part> states, params, grads;
  std::size_t bytes = 0;  // of the buffer; 0: nothing passes through
};
SlotParts slot_parts(const StatePlan& plan, const PieceId& id, SteppedBy by);
// Of the largest deferred piece, when the host steps none beside the device.
std::size_t largest_slot(const StatePlan& plan);
std::size_t whole_pages(std::size_t bytes);  // of files

}  // namespace zeepo
