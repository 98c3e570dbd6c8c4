// Owns the states of a model and moves them: the one data path for every stage, tier and backend.
//
// It sees the model as units of named flat parameters and four calls: before and after each visit, forward and
// backward. The engine must outlive every tensor that the model computes while it is attached, and detaches when
// destroyed. All calls come from the rank's own thread, with its Device in scope.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/nn/module.h"
#include "zeepo/nn/weight_source.h"
#include "zeepo/optim/optimizer.h"
#include "zeepo/zero/loss_scale.h"
#include "zeepo/zero/unit.h"

namespace zeepo {

enum class Decay { all, matrices };  // matrices: only parameters of two or more dimensions
enum class Use { train, infer };     // infer keeps the parameters alone

struct EngineOptions {
  Use use = Use::train;
  DType dtype = DType::f32;  // of parameters, activations and gradients
  OptimizerOptions optimizer = {};
  Decay decay = Decay::all;
  std::int64_t accumulation = 1;  // micro-steps a step
  float clip = 1.0f;              // 0 or less: no clipping
  bool activation_checkpointing = false;
  LossScale::Options loss_scale = {};  // fp16 only
};

struct StepResult {
  float loss = 0;  // the mean over the step's micro-steps, before the update
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

  // Sets every weight.
  void load(const WeightSource& source);
  // All slices, sorted by name, and their exact fp32 values.
  std::vector<WeightSlice> slices() const;
  void read(const std::string& name, std::int64_t begin, std::span<float> out) const;
  // A hash of all exact weights in name order.
  std::string weights_hash() const;
  std::int64_t parameter_count() const { return parameter_count_; }
  const UnitPlan& plan() const { return plan_; }

  // Forward and backward pass of one micro-batch; its gradients are reduced into the shards. `loss` gives one element.
  void micro_step(const std::function<Tensor()>& loss);
  // After `accumulation` micro-steps: norm, clip, step.
  StepResult step(double lr);
  // The loss without a backward pass.
  float evaluate(const std::function<Tensor()>& loss);

 private:
  struct UnitState {
    Tensor params;                // the training dtype
    Tensor low;                   // what `params` lacks of the fp32 weight, see kernels/optimizer.h
    Tensor grads;                 // summed over micro-steps: fp32 with accumulation, else the training dtype
    std::vector<Tensor> moments;  // fp32
    Tensor pending;               // gradients of this micro-step, not yet reduced
    int open_visits = 0;          // forward visits whose backward visit is to come
    bool reduced = false;         // in this micro-step
  };
  struct Place {
    std::size_t unit;
    std::int64_t offset;
  };
  struct SlicePlace {
    WeightSlice slice;
    Place place;
  };

  void before_forward(Module& module) override;
  void after_forward(Module&) override {}
  void before_backward(Module&) override {}
  void after_backward(Module& module) override;
  Gradient::Target gradient_of(const Leaf& leaf) override;

  void allocate(UnitState& state, const Unit& unit);
  void clear_padding(const Unit& unit, const Tensor& flat);
  void reduce(std::size_t unit);
  void step_unit(std::size_t unit, ConstView control, double lr);
  Weights weights(const UnitState& state, std::int64_t begin, std::int64_t elements) const;

  EngineOptions options_;
  Communicator& communicator_;
  Module& model_;
  UnitPlan plan_;
  std::vector<UnitState> states_;
  std::map<const Module*, const UnitVisit*> visits_;
  std::map<const Leaf*, Place> places_;
  std::map<std::string, SlicePlace> slices_;
  std::int64_t parameter_count_ = 0;

  LossScale loss_scale_;
  Tensor loss_, norm_partials_, control_;
  std::int64_t micro_steps_ = 0;  // done of the current step
  std::int64_t steps_ = 0;        // taken, skipped ones not counted
};

}  // namespace zeepo
