// Owns the states of a model and moves them: the one data path for every stage, tier and backend.
//
// It sees the model as units of named flat parameters and four calls: before and after each visit, forward and
// backward. Every parameter is gathered, used, released, its gradient reduced into this rank's shard and the shard
// stepped; a stage only says what is kept in between. The engine must outlive every tensor that the model computes
// while it is attached, and detaches when destroyed. All calls come from the rank's own thread, with its Device in
// scope; every rank makes the same calls.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/device/memory.h"
#include "zeepo/memory/lower_tiers.h"
#include "zeepo/nn/module.h"
#include "zeepo/nn/weight_source.h"
#include "zeepo/optim/optimizer.h"
#include "zeepo/schedule/pass_planner.h"
#include "zeepo/zero/activation_store.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/host_stepper.h"
#include "zeepo/zero/loss_scale.h"
#include "zeepo/zero/placement.h"
#include "zeepo/zero/state_slots.h"
#include "zeepo/zero/step_side.h"
#include "zeepo/zero/unit.h"
#include "zeepo/zero/unit_state.h"
#include "zeepo/zero/weight_places.h"

namespace zeepo {

enum class Decay { all, matrices };  // matrices: only parameters of two or more dimensions
enum class Use { train, infer };     // infer keeps the parameters alone

// When gradients of several micro-steps are reduced over the ranks: each micro-step into the shard, the same at every
// stage; or summed locally first, with less traffic, more memory and other rounding (stages 0 and 1).
enum class Reduce { each, last };

struct EngineOptions {
  Use use = Use::train;
  DType dtype = DType::f32;  // of parameters, activations and gradients
  // What is sharded over the ranks: 0 nothing, 1 the optimizer's state, 2 and the gradients, 3 and the parameters.
  int stage = 0;
  // Of gathered parameters ahead of their use; 0: nothing runs ahead, and no collective beside the compute.
  std::int64_t prefetch_bytes = std::int64_t{256} << 20;
  OptimizerOptions optimizer = {};
  Decay decay = Decay::all;
  std::int64_t accumulation = 1;  // micro-steps a step
  Reduce reduce = Reduce::each;
  // With several micro-steps the ops of a rank alone add to the fp32 sum of gradients themselves: nothing is rounded to
  // the training type, or held beside it. Only where the sums are on the device wherever the state lives, so that
  // placements agree: with `step_below_on` device, or all of the optimizer's state on the device. Not with
  // Reduce::last.
  bool ops_add_gradients = false;
  std::int64_t blocks_per_unit = 1;  // of the model's repeated blocks
  Placement placement = {};          // below the device: in the tiers of the current Device
  StepSide step_below_on = StepSide::host;
  // Where the device steps what lives below it: the part of what lives in host memory that the host steps instead,
  // beside it (HostStepper); and how many of these pieces have buffers. None: no part, at any time.
  double host_share = 0;
  int host_pieces_under_way = 0;
  // Elements of the optimizer's state below the device that are moved and stepped together, a multiple of
  // kPieceAlignment; and how many of these may be under way: in host memory where they live in files and the host steps
  // them, in device memory where the device does.
  std::int64_t piece_elements = 1 << 22;
  int pieces_under_way = 4;
  float clip = 1.0f;  // 0 or less: no clipping
  StepPhase step_phase = StepPhase::after_backward;
  // ZeRO-Offload's delayed update: after this many steps, the update of a step is made under the next step's passes,
  // each unit after its last use there. So weights lag one step behind: those of step t have the updates up to step t
  // − 2.
  std::optional<std::int64_t> delay_after = {};
  bool activation_checkpointing = false;
  LossScale::Options loss_scale = {};  // fp16 only
};

// How far transfers run ahead. It changes when memory is used, and no bit of what is computed.
struct Depths {
  std::int64_t prefetch_bytes;
  int pieces_under_way;
  double host_share = 0;
  friend bool operator==(const Depths&, const Depths&) = default;
};

struct StepResult {
  float loss = 0;  // the mean over the step's micro-steps and ranks, before the update
  float grad_norm = 0;
  bool skipped = false;  // fp16 overflow: nothing was changed
  float loss_scale = 1;  // that the step was computed with
};

// Seconds that the compute has waited: for collectives, for host memory and files, and for the step of what lives below
// the device.
struct Stalls {
  double gather = 0, host = 0, nvme = 0, step = 0;
  friend Stalls operator-(const Stalls& a, const Stalls& b) {
    return {a.gather - b.gather, a.host - b.host, a.nvme - b.nvme, a.step - b.step};
  }
};

class Engine final : private VisitHooks, private Leaf::Store {
 public:
  // Pieces are whole pages of files in every dtype, and whole blocks of the gradient norm.
  static constexpr std::int64_t kPieceAlignment = 1 << 17;

  Engine(Module& model, Communicator& communicator, const EngineOptions& options);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Sets every weight, and starts the optimizer anew; each rank asks for its shard only.
  void load(const WeightSource& source);
  // All slices, sorted by name, and their exact fp32 values.
  std::vector<WeightSlice> slices() const;
  void read(const std::string& name, std::int64_t begin, std::span<float> out);
  // Settles, and takes for a moment the most device memory that reading any weights does: for a dry pass.
  void take_room_to_read();
  // A hash of all exact weights in name order.
  std::string weights_hash();
  std::int64_t parameter_count() const { return parameter_count_; }
  const UnitPlan& plan() const { return plan_; }

  // Forward and backward pass of one micro-batch; its gradients are reduced into the shards. `loss` gives one element.
  // When it throws, on every rank at the same place, the step's earlier micro-steps are dropped with it: the next one
  // is the first of a new step. With steps in the backward pass, what has been stepped until then stays stepped.
  void micro_step(const std::function<Tensor()>& loss);
  // The learning rate of the step whose micro-steps come next: needed before the last of them where shards are stepped
  // in the backward pass.
  void expect_rate(double lr) { expected_rate_ = lr; }
  // After `accumulation` micro-steps: norm, clip, step; or, where shards are stepped in the backward pass, what is left
  // of it, with the rate that was expected. Throws Error when a gradient is not finite and there is no loss
  // scale to lower, with the weights as before; and when the loss alone is not finite, after the step. Shards stepped
  // in the backward pass leave out only those with such gradients; the others have been stepped when it throws.
  StepResult step(double lr);
  // Returns when every weight is stepped, delayed updates too, and nothing is on its way: others may then use the
  // communicator.
  void settle();
  // Other depths from the next step() on, when nothing is held that was fetched ahead: memory is used as if it had
  // always been so. A prefetch of 0 stays 0 and no other becomes 0; no more pieces than there were at first, and
  // another share of them stepped by the host only where that was none at first.
  void set_depths(const Depths& depths);
  // Sums each number over all ranks; between two steps.
  void sum_over_ranks(std::span<float> numbers);
  // Runs f as one pass without a backward pass.
  void infer(const std::function<void()>& f);
  // Bytes sent so far. Parameters gathered by a step for the next pass count with that pass.
  CommBytes sent() const;
  Stalls stalls() const;

 private:
  enum PassKind { kTraining, kInference };
  // A reduction on its way, and the memory it works on. `sum` is of earlier micro-steps, come from below the device.
  struct Reduction {
    std::size_t unit;
    Collecting done;
    Tensor pending, scratch, reduced, sum;
    std::vector<Completion> sum_arriving;
  };
  // Gradients on their way down.
  struct Leaving {
    Tensor gradients;
    Completion done;
    Place place;
  };
  // What a buffer for weights in files holds: a part of a block.
  struct Buffered {
    const Block* block = nullptr;
    std::size_t offset = 0, bytes = 0;
    friend bool operator==(const Buffered&, const Buffered&) = default;
  };
  struct PieceRef {
    std::size_t unit, piece;
  };

  void before_forward(Module& module) override;
  void after_forward(Module& module) override;
  void before_backward(Module& module) override;
  void after_backward(Module& module) override;
  Gradient::Target gradient_of(const Leaf& leaf) override;

  // Setting up.
  void check_options() const;
  struct Dealers {
    Dealer params, optimizer;
  };
  void keep(UnitState& state, const Unit& unit, bool stays, Dealers& deal);
  void keep_on_device(UnitState& state);
  void keep_pieces(UnitState& state, Dealer& deal);
  void keep_gradients(UnitState& state);
  SteppedBy stepped_by(const UnitState& state, Place place) const;
  void order_pieces(const std::vector<bool>& visited);
  bool host_may_step(const PieceRef& ref) const;
  void make_host_stepper();
  void deal_sides(double host_share);
  void make_slots();
  StateLayout layout(const UnitState& state, Place place) const;
  DType grads_dtype() const { return options_.accumulation > 1 ? DType::f32 : options_.dtype; }
  bool steps_on_device() const { return options_.step_below_on == StepSide::device; }
  Shares params_shares() const;
  bool shards_params() const { return options_.stage == 3 || !options_.placement.params.on_device(); }
  bool steps_whole() const {
    return options_.stage == 0 && options_.placement.optimizer.on_device() && !shards_params();
  }
  void attach_parameters(std::size_t unit);
  PassPlanner::Options planner_options() const;
  bool persistent(const Unit& unit) const;

  // Parameters on their way in and out.
  void hold(const PassPlanner::Wanted& wanted);
  void fetch(std::size_t unit);
  void await(std::size_t unit);
  void release(std::size_t unit);
  void show(std::size_t unit, bool there);
  void make_cache();
  void let_go(std::size_t unit);
  void drop_cache();
  std::int64_t gathered_bytes(std::size_t unit) const;
  void begin_pass(int kind);
  void end_pass();
  void train_pass(const std::function<Tensor()>& loss);
  void abandon_step();
  void outlast_transfers() noexcept;

  // Weights in and out.
  struct HostWeights;
  void load_unit(std::size_t unit, const WeightSource& source, HostWeights& host);
  void write_chunk(std::size_t unit, const Extent& chunk, HostWeights& host);
  std::int64_t read_piece_elements() const;
  void read_part(const UnitPlace& place, std::span<float> out);
  void read_exact(std::size_t unit, const Extent& range, const Tensor& fp32, std::span<float> out);
  const StatePiece* piece_of(const UnitState& state, const Extent& range) const;
  std::byte* buffered(std::size_t buffer, const Block& block, std::size_t offset, std::size_t bytes);

  // Gradients.
  bool ops_add_to_sums() const {
    return options_.ops_add_gradients && options_.accumulation > 1 && !sums_locally() && collectives_.alone();
  }
  bool reduces_in_place() const;
  bool sums_locally() const { return options_.reduce == Reduce::last && options_.accumulation > 1; }
  bool sum_locally(UnitState& state);
  bool adds_to_sum() const { return options_.accumulation > 1 && micro_steps_ > 0 && !sums_locally(); }
  void clear_padding(std::size_t unit, const Tensor& flat);
  void reduce(std::size_t unit);
  Tensor scratch_on_its_way(const UnitState& state) const;
  void finish_reduction();
  void keep_reduced(Reduction& reduction);
  bool last_micro_step() const { return micro_steps_ + 1 == options_.accumulation; }
  void fetch_sum(Reduction& reduction);
  void keep_in_pieces(UnitState& state, Reduction& reduction);
  void measure(const UnitState& state, const Tensor& sums, std::int64_t begin);
  void finish_leaving();
  bool gathers_gradients() const { return steps_whole() && !collectives_.alone(); }
  void gather_gradients(std::size_t unit);
  void gather_rest();

  // The step: at once where the state is on the device; where it is below, or gradients still come from other ranks,
  // just ahead of the next use of the unit.
  struct PieceMemory {
    StateViews states;
    View param, grads;
  };
  struct SlotParts {
    std::optional<StateSlots::Part> states, params, grads;
    std::size_t bytes = 0;
  };
  void turn_to_next_depths();
  void compute_norm();
  // The step's control and loss go to the host, and are there.
  void send_control();
  void take_control();
  void before_step(std::size_t unit);
  void step_piece(Stream& stream, std::size_t unit, const Extent& extent, const PieceMemory& memory,
                  ConstView control) const;
  void step_at_once(std::size_t unit);
  PieceMemory on_device(const UnitState& state, const StatePiece& piece) const;
  View gradients_of(const UnitState& state, const Extent& extent) const;
  void regather(std::size_t unit);
  bool steps_later(std::size_t unit) const;
  void begin_later_steps();
  void step_beside(const PieceRef& ref);
  void finish_host_steps();
  void step_later_pieces(std::size_t end);  // of `later_`
  void step_ahead(const std::vector<std::size_t>& now);
  void step_all_later_pieces() { step_later_pieces(later_.size()); }
  void step_later_piece(const PieceRef& ref);
  PieceMemory memory_of_later(const PieceRef& ref, const SlotParts& parts, std::byte* slot) const;
  SlotParts parts_in_slot(const PieceRef& ref) const;
  std::size_t params_offset(const UnitState& state, const Extent& extent) const;  // in its params_block
  void read_ahead();
  void forget_read_ahead();
  Stream& host_stream() const;

  // The delayed update (delayed_update.cpp).
  bool delays() const { return options_.delay_after.has_value(); }
  void delay_update();
  void update_unit(std::size_t unit);
  void keep_in_turn(Reduction reduction);
  void finish_update();

  // The step inside the backward pass (step_in_backward.cpp).
  bool steps_in_backward() const { return options_.step_phase == StepPhase::in_backward && !gathers_gradients(); }
  bool steps_with_backward() const { return steps_in_backward() || delays(); }
  bool keeps_gradients() const { return !steps_in_backward() || options_.accumulation > 1; }
  void begin_steps_in_backward();
  void when_reduced(std::size_t unit);
  void step_reduced();
  void step_ready_pieces();
  void abandon_steps_in_backward();
  ConstView control_on_device(std::size_t unit) const;
  std::array<float, 3> control_on_host(std::size_t unit) const;
  Label label(const char* what, std::size_t unit) const;
  About about(std::string_view what, std::size_t unit) const { return {what, plan_.units[unit].name}; }

  EngineOptions options_;
  LowerTiers* lower_;   // null: none in scope
  Timeline* timeline_;  // null: none
  Collectives collectives_;
  UnitPlan plan_;
  WeightPlaces places_;  // of its weights
  std::vector<UnitState> states_;
  std::vector<std::size_t> always_there_;        // units that no visit names
  std::map<const Module*, std::size_t> visits_;  // index into plan_.visits
  std::vector<int> open_visits_;                 // of each of these: forward, whose backward visit is to come
  // All pieces that are not stepped at once, in the order in which they are: that of the next forward pass; or, with
  // steps in a backward pass or under one, of that.
  std::vector<PieceRef> later_;
  std::vector<std::size_t> later_end_;  // of each unit: what of `later_` is stepped before the unit is used
  std::size_t later_stepped_ = 0;       // of `later_`, in the current step; all of them when it is done
  std::vector<PieceRef> in_slots_;      // those of `later_` that pass through a slot, in the same order
  // Numbers of slots_: the next to be used, to be read into, to get gradients; the end of the current step.
  std::int64_t used_slots_ = 0, read_slots_ = 0, read_grads_ = 0, slots_end_ = 0;
  // State and weights in files on their way in and out, and what is in the buffers.
  std::array<Block, 2> weight_buffers_;
  std::array<Buffered, 2> buffered_{};
  std::vector<std::byte> host_copy_;           // of weights on the device that are read to the host
  std::unique_ptr<StateSlots> slots_;          // where any piece passes through one
  std::unique_ptr<HostStepper> host_stepper_;  // where the host may step beside the device
  Completion host_stepped_;                    // of the last piece that it was given
  double dealt_share_ = 0;                     // that the sides of pieces were chosen for
  std::unique_ptr<ActivationStore> activations_;
  std::int64_t parameter_count_ = 0;
  std::unique_ptr<PassPlanner> planner_;
  // With CachePolicy::lru: gathered units that nothing wants at the moment, the one used last at the end.
  std::deque<std::size_t> cached_;
  std::int64_t cache_bytes_ = 0, cached_bytes_ = 0;
  std::deque<Reduction> reductions_;
  std::vector<Leaving> leaving_;
  std::vector<std::size_t> to_gather_;  // units whose sums are reduced, but not sent to the other ranks
  std::int64_t sent_early_bytes_ = 0;   // for the next pass
  std::vector<Span> visiting_;          // for the timeline: one within another

  LossScale loss_scale_;
  Tensor loss_, norm_partials_, control_;
  // The last step's on the host, and the memory that they come through.
  std::array<float, sizeof(StepControl) / sizeof(float)> host_control_{};
  float host_loss_ = 0;
  MemoryRange control_memory_;
  Point control_sent_;
  // Where updates are delayed.
  bool update_waits_ = false;       // the last step's, of units ...
  std::vector<bool> updated_;       // ... that have not had it
  std::deque<Reduction> in_queue_;  // whose units must not lose their last gradients yet
  // Where shards are stepped in the backward pass.
  Tensor unit_controls_;                 // a StepControl a unit
  std::vector<std::size_t> to_step_;     // units whose gradients are on their way to where they are stepped
  std::vector<bool> may_step_;           // of each unit: all its gradients are there
  std::optional<double> expected_rate_;  // of the step that is under way
  double lr_ = 0;                        // of the last step
  double step_seconds_ = 0;              // below the device
  std::optional<Depths> next_depths_;
  std::int64_t micro_steps_ = 0;  // done of the current step
  std::int64_t steps_ = 0;        // taken since load(), skipped ones not counted
};

}  // namespace zeepo
