// Owns the states of a model and moves them: the one data path for every stage, tier and backend.
//
// The engine sees a model as units of flat parameters and visits by number. Every parameter is gathered, used,
// released, its gradient reduced into this rank's shard and the shard stepped; a stage only says what is kept in
// between. The engine is the order of calls; each room below owns one thing:
//
//   StatePlan        what is kept where, and who steps it when      StateStore       the shard's bytes in every tier
//   PieceBuffers     pieces on their way to who steps them          WeightStream     gathered parameters
//   GradientReducer  gradients on their way                         GradientNorm     norm, clip factor, loss scale,
//                                                                   loss
//   StepQueue        what is to be stepped, and when                StateIo          weights by name and range
//   StateSnapshot    copies of the states while training goes on
//
// A front end (binding/) makes the units and calls before() and after() around each visit. All calls come from the
// rank's own thread, with its Device in scope; every rank makes the same calls.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/comm/communicator.h"
#include "zeepo/zero/moved_bytes.h"
#include "zeepo/zero/open_visits.h"
#include "zeepo/zero/state_io.h"
#include "zeepo/zero/step_queue.h"

namespace zeepo {

// What decides about later steps beside the states.
struct EngineProgress {
  std::int64_t steps_taken = 0;  // skipped ones not counted
  LossScale::State loss_scale = {};
};

struct SavedState {
  MomentSource moments;
  EngineProgress progress;
};

// A step whose loss or gradients are not finite. The same on all ranks.
class NotFinite : public Error {
 public:
  template <class... Args>
  explicit NotFinite(StepResult result, fmt::format_string<Args...> format, Args&&... args)
      : Error(format, std::forward<Args>(args)...), result_(std::move(result)) {}
  const StepResult& result() const { return result_; }

 private:
  StepResult result_;
};

class Engine {
 public:
  // Gathered parameters are put where `memory` says, which is borrowed.
  Engine(UnitPlan units, Communicator& communicator, const EngineOptions& options, GatherMemory* memory = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const UnitPlan& units() const { return units_; }
  const StatePlan& plan() const { return plan_; }

  // Sets every weight; each rank asks for its shard only. The optimizer starts anew, or goes on from a saved state.
  // Coded rows come from `codes` where there are some.
  void load(const WeightSource& source, const SavedState* saved = nullptr, const CodedSource& codes = {});
  // Settles; the weights by name then.
  StateIo& settled_io();
  // Of the steps taken so far, what a snapshot of the states needs beside it.
  EngineProgress progress() const { return {steps_taken_, norm_.loss_scale().state()}; }
  // Between two steps a snapshot of the states may begin.
  StateSnapshot& snapshot() { return snapshot_; }

  // Forward and backward pass of one micro-batch, in this order. begin_micro_step() gives what the loss's gradient is
  // to start from; begin_backward() takes the loss, one element on the device.
  float begin_micro_step();
  void begin_backward(const Tensor& loss);
  void end_micro_step();
  // Or a pass without a backward pass.
  void begin_inference();
  // another: a pass like this one follows, and what it wants first is on its way when this returns.
  enum class Then : bool { nothing, another };
  void end_inference(Then then = Then::nothing);
  // After a pass that threw, on every rank at the same place. A step's earlier micro-steps are dropped with one of its
  // micro-steps, and the next one is the first of a new step. With steps in the backward pass, what has been stepped
  // until then stays so.
  void abandon_pass();

  // Around each visit of a pass. recorded: the visit will have a backward visit.
  enum class Recorded : bool { no, yes };
  void before(const Visit& visit, Recorded recorded = Recorded::no);
  void after(const Visit& visit);
  // Instead of before() and after(), for a front end that learns of uses as they come and not of their ends: these
  // units are here until the next call. Each call is a visit for who prefetches; the order of the units counts.
  void use(const std::vector<std::size_t>& units, Visit::Direction direction);
  // And of gradients: no more come for the unit in this micro-step. end_micro_step() says so of those that are left.
  void reduce(std::size_t unit);
  // A parameter's value during a visit that names its unit, and where to write its gradient.
  Tensor parameter(const ParameterId& id) { return weights_.parameter(id); }
  // The same as it is stored, where that is as codes and they are here whole.
  friend WeightStream::Stored stored_parameter(const Engine& engine, const ParameterId& id) {
    return engine.weights_.stored(id);
  }
  GradientTarget gradient(const ParameterId& id) { return reducer_.target(id); }

  // The learning rate of the step whose micro-steps come next: needed before the last of them where shards are stepped
  // in the backward pass.
  void expect_rate(double lr) { rate_.expected = lr; }
  // After `accumulation` micro-steps: norm, clip, step; or, where shards are stepped in the backward pass, what is left
  // of it, with the rate that was expected. With OnNan::stop throws NotFinite when a gradient is not finite and there
  // is no loss scale to lower, with the weights as before; and when the loss alone is not finite, after the step.
  // Shards stepped in the backward pass leave out only those with such gradients; the others have been stepped when it
  // throws.
  // `note` is a number of this rank's that travels with the losses: how the ranks agree on something at this step.
  // `rules`: a learning rate, or a rule for each group of parameters, which cannot be with steps in the backward pass.
  StepResult step(const StepRules& rules, float note = 0);
  // Before such a step, as often as is wanted: the norm of its gradients, which the step clips to `clip` instead of the
  // options'. scale: what a front end has multiplied the loss by, which the step divides its gradients by.
  float clip_to(float clip, float scale = 1);
  // Returns when every weight is stepped, and nothing is on its way: others may then use the communicator. Or, of the
  // weights alone, when what the compute stream is given from now on sees the new ones, while states go on down.
  enum class Settled : bool { weights, all };
  void settle(Settled what = Settled::all);
  // Other depths from the next step() on, when nothing is held that was fetched ahead: memory is used as if it had
  // always been so. A prefetch of 0 stays 0 and no other becomes 0; no more pieces than there were at first, and
  // another share of them stepped by the host only where that was none at first.
  void set_depths(const Depths& depths);
  // For what the ranks tell each other between two steps or passes: rank_talk.h.
  Collectives& collectives() { return collectives_; }
  // Bytes moved so far. Parameters fetched by a step for the next pass count with that pass. Deferred updates that run
  // after their step() has returned are in `late` alone, so that a step's account is the growth of `in_time` between
  // the end of the step before it and its own end, and that of `late` from there to settle().
  struct Account {
    MovedBytes in_time, late;
    MovedBytes all() const { return in_time + late; }
  };
  Account moved() const;
  Stalls stalls() const;

 private:
  void step_and_fetch(const PassPlanner::Wanted& wanted);
  void finish_reduction();

  UnitPlan units_;
  Timeline* timeline_;  // null: none
  Collectives collectives_;
  StatePlan plan_;
  StateStore store_;
  PieceBuffers buffers_;
  WeightStream weights_;
  GradientNorm norm_;
  GradientReducer reducer_;
  StateSnapshot snapshot_;
  StepQueue steps_;
  StateIo io_;
  OpenVisits visits_;
  struct {
    PassKind kind = PassKind::training;
    std::vector<Span> visits;     // for the timeline: one within another
  } pass_;                        // that is under way
  MicroStep micro_step_;          // the next
  std::int64_t steps_taken_ = 0;  // since load(), skipped ones not counted
  std::optional<Depths> next_depths_;
  bool settled_ = false;  // nothing has begun since settle()
  struct {
    std::optional<double> expected;  // of the step that is under way
    double in_backward = 0;          // of the last step inside a backward pass
  } rate_;
  MovedBytes late_;
};

}  // namespace zeepo
