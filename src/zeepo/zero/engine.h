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
#include <span>
#include <string>
#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/nn/module.h"
#include "zeepo/nn/weight_source.h"
#include "zeepo/optim/optimizer.h"
#include "zeepo/schedule/pass_planner.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/loss_scale.h"
#include "zeepo/zero/unit.h"
#include "zeepo/zero/unit_state.h"

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
  std::int64_t blocks_per_unit = 1;  // of the model's repeated blocks
  float clip = 1.0f;                 // 0 or less: no clipping
  bool activation_checkpointing = false;
  LossScale::Options loss_scale = {};  // fp16 only
};

struct StepResult {
  float loss = 0;  // the mean over the step's micro-steps and ranks, before the update
  float grad_norm = 0;
  bool skipped = false;  // fp16 overflow: nothing was changed
  float loss_scale = 1;  // that the step was computed with
};

class Engine final : private VisitHooks, private Leaf::Store {
 public:
  Engine(Module& model, Communicator& communicator, const EngineOptions& options);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Sets every weight; each rank asks for its shard only.
  void load(const WeightSource& source);
  // All slices, sorted by name, and their exact fp32 values.
  std::vector<WeightSlice> slices() const;
  void read(const std::string& name, std::int64_t begin, std::span<float> out);
  // A hash of all exact weights in name order.
  std::string weights_hash();
  std::int64_t parameter_count() const { return parameter_count_; }
  const UnitPlan& plan() const { return plan_; }

  // Forward and backward pass of one micro-batch; its gradients are reduced into the shards. `loss` gives one element.
  // When it throws, on every rank at the same place, the step's earlier micro-steps are dropped with it: the next one
  // is the first of a new step.
  void micro_step(const std::function<Tensor()>& loss);
  // After `accumulation` micro-steps: norm, clip, step. Throws Error when a gradient is not finite and there is no loss
  // scale to lower, with the weights as before; and when the loss alone is not finite, after the step.
  StepResult step(double lr);
  // Returns when nothing is on its way between the ranks: others may then use the communicator.
  void settle();
  // Runs f as one pass without a backward pass.
  void infer(const std::function<void()>& f);
  // Of all collectives so far: bytes sent, and time that the compute has waited. Parameters gathered by a step for the
  // next pass count with that pass.
  CommBytes sent() const;
  double stalled_seconds() const { return collectives_.stalled_seconds(); }

 private:
  enum PassKind { kTraining, kInference };
  struct Place {
    std::size_t unit;
    std::int64_t offset;
  };
  struct SlicePlace {
    WeightSlice slice;
    Place place;
  };
  // A reduction on its way, and the memory it works on.
  struct Reduction {
    std::size_t unit;
    Completion done;
    Tensor pending, scratch, reduced;
  };

  void before_forward(Module& module) override;
  void after_forward(Module&) override {}
  void before_backward(Module& module) override;
  void after_backward(Module& module) override;
  Gradient::Target gradient_of(const Leaf& leaf) override;

  // Setting up.
  void keep(UnitState& state, const Unit& unit, bool params_whole);
  void place_parameters(std::size_t unit);
  PassPlanner::Options planner_options() const;
  bool persistent(const Unit& unit) const;
  std::vector<float> piece_buffer() const;  // for weights on their way in and out

  // Parameters on their way in and out.
  void hold(const PassPlanner::Wanted& wanted);
  void fetch(std::size_t unit);
  void await(std::size_t unit);
  void release(std::size_t unit);
  void show(std::size_t unit, bool there);
  void begin_pass(int kind);
  void end_pass();
  void train_pass(const std::function<Tensor()>& loss);
  void abandon_step();

  // Gradients.
  bool reduces_in_place() const;
  bool sums_locally() const { return options_.reduce == Reduce::last && options_.accumulation > 1; }
  bool sum_locally(UnitState& state);
  void clear_padding(std::size_t unit, const Tensor& flat);
  void reduce(std::size_t unit);
  void finish_reduction();

  // The step.
  void compute_norm();
  void step_unit(std::size_t unit, double lr);
  Label label(const char* what, std::size_t unit) const;

  EngineOptions options_;
  Collectives collectives_;
  UnitPlan plan_;
  std::vector<UnitState> states_;
  std::vector<std::size_t> always_there_;        // units that no visit names
  std::map<const Module*, std::size_t> visits_;  // index into plan_.visits
  std::map<const Leaf*, Place> places_;
  std::map<std::string, SlicePlace> slices_;
  std::int64_t parameter_count_ = 0;
  std::unique_ptr<PassPlanner> planner_;
  std::deque<Reduction> reductions_;
  std::int64_t sent_early_bytes_ = 0;  // for the next pass

  LossScale loss_scale_;
  Tensor loss_, norm_partials_, control_;
  std::int64_t micro_steps_ = 0;  // done of the current step
  std::int64_t steps_ = 0;        // taken, skipped ones not counted
};

}  // namespace zeepo
