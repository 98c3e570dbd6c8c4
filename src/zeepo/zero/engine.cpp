#include "zeepo/zero/engine.h"

#include <cmath>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/first_failure.h"
#include "zeepo/device/weights_stay.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// Adds to `late` what f moves: deferred updates of a step that has returned, whatever pass they run under.
template <class F>
void count_late(MovedBytes& late, const Collectives& collectives, F&& f) {
  const MovedBytes before = moved_so_far(collectives);
  f();
  late = late + (moved_so_far(collectives) - before);
}

// A failure is not told here: either something worse has happened, or every later transfer throws the same.
void outlast_transfers(WeightStream& weights, GradientReducer& reducer, StepQueue& steps) noexcept {
  weights.outlast();
  reducer.outlast();
  steps.outlast();
  FirstFailure told;
  told.outlast([] {
    if (Device::current().lower) Device::current().lower->drain();
  });
}

// What a step that is taken or skipped has come to; throws NotFinite where the run is to stop.
StepResult result_of(GradientNorm& norm, const StatePlan& plan, bool skipped) {
  const bool scaled = norm.loss_scale().in_use();
  StepResult result{norm.loss(), norm.on_host().norm, skipped, norm.loss_scale().value(), norm.note()};
  result.not_finite = !std::isfinite(result.loss) || (skipped && !scaled);
  if (result.not_finite) result.bad_losses = norm.bad_losses();
  if (skipped) {
    if (plan.steps_in_backward())
      throw NotFinite(
          result,
          "step: a gradient is infinite or not a number (loss {}); weights with finite gradients have been stepped in "
          "the backward pass. Lower --lr, or look for broken weights or data",
          result.loss);
    if (!scaled && plan.options.on_nan == OnNan::stop)
      throw NotFinite(
          result,
          "step: a gradient is infinite or not a number (loss {}); the weights are as before this step. Lower "
          "--lr, or look for broken weights or data",
          result.loss);
  } else if (!std::isfinite(result.loss)) {
    throw NotFinite(
        result,
        "step: the loss is {}, with finite gradients; the step has been taken. Lower --lr, or look for broken weights "
        "or data",
        result.loss);
  }
  norm.update_loss_scale(skipped && !std::isfinite(result.grad_norm));
  return result;
}

void check_rules(const StepRules& rules, const UnitPlan& units, const StatePlan& plan) {
  if (rules.groups.empty()) return;
  if (plan.steps_in_backward())
    throw Error("engine: step() with a rule for each group, and steps in the backward pass");
  for (const Unit& unit : units.units)
    for (const UnitParameter& parameter : unit.parameters)
      if (parameter.trainable && parameter.group >= rules.groups.size())
        throw Error("engine: {} rules, and a parameter of {} in group {}", rules.groups.size(), unit.name,
                    parameter.group);
}

}  // namespace

Engine::Engine(UnitPlan units, Communicator& communicator, const EngineOptions& options, GatherMemory* memory)
    : units_(std::move(units)),
      timeline_(Device::current().timeline),
      collectives_(communicator, options.prefetch_bytes > 0 ? Collectives::Overlap::yes : Collectives::Overlap::no,
                   options.wire),
      plan_(plan_states(units_, options, {communicator.rank(), communicator.size(), communicator.alone()})),
      store_(units_, plan_),
      buffers_(units_, plan_, store_),
      weights_(units_, plan_, store_, collectives_, memory),
      norm_(plan_, collectives_),
      reducer_(units_, plan_, store_, norm_, collectives_),
      snapshot_(units_, plan_, store_),
      steps_(units_, plan_, {store_, buffers_, reducer_, norm_, weights_, snapshot_}),
      io_(units_, plan_, store_, collectives_),
      visits_(units_),
      micro_step_{0, options.accumulation} {
  std::vector<WireLane::Use> uses;
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    const UnitStates& states = plan_.units[u];
    uses.push_back({.shard_elements = states.own.elements(),
                    .gathered_as = states.gathered_as,
                    .reduced_as = states.trained ? states.reduced_as : WireType::same,
                    .node_copy = plan_.keeps_node_copy(u)});
  }
  collectives_.messages().take_room(uses, options.dtype, options.wire.feedback);
}

Engine::~Engine() { outlast_transfers(weights_, reducer_, steps_); }  // they work on memory that goes now

void Engine::load(const WeightSource& source, const SavedState* saved, const CodedSource& codes) {
  if (micro_step_.number > 0)
    throw Error("engine: load() after {} of {} micro-steps: their gradients are of other weights; step() first",
                micro_step_.number, micro_step_.count);
  settle();
  settled_ = false;
  weights_.release_all();  // what was gathered ahead of the next pass would be of the old weights
  weights_.drop_cache();
  weights_.forget_copies();
  reducer_.forget_lost();
  buffers_.forget_read_ahead();
  steps_taken_ = saved ? saved->progress.steps_taken : 0;
  if (saved) norm_.restore_loss_scale(saved->progress.loss_scale);
  io_.load(source, saved ? &saved->moments : nullptr, codes);
  buffers_.read_ahead();  // for the first step, under its own pass
}

StateIo& Engine::settled_io() {
  settle();
  return io_;
}

// What a unit's next use needs comes in the order of use: its step, its parameters.
void Engine::step_and_fetch(const PassPlanner::Wanted& wanted) {
  for (const auto* units : {&wanted.now, &wanted.ahead})
    for (const std::size_t u : *units) {
      count_late(late_, collectives_, [&] { steps_.until(u); });
      weights_.fetch(u);
    }
  count_late(late_, collectives_, [&] { steps_.ahead_of(wanted.now); });
  for (const std::size_t u : wanted.now) weights_.await(u);
}

float Engine::begin_micro_step() {
  if (plan_.options.use != Use::train) throw Error("engine: made for inference, asked to train");
  if (micro_step_.number == micro_step_.count)
    throw Error("engine: more than {} micro-steps before step()", micro_step_.number);
  pass_.kind = PassKind::training;
  settled_ = false;
  reducer_.begin(micro_step_);
  try {
    step_and_fetch(weights_.begin_pass(pass_.kind));
  } catch (...) {
    abandon_pass();
    throw;
  }
  return norm_.loss_gradient();
}

void Engine::before(const Visit& visit, Recorded recorded) {
  const bool forward = visit.direction == Visit::Direction::forward;
  snapshot_.advance();
  step_and_fetch(weights_.visit(visit));
  pass_.visits.emplace_back(timeline_, TimelineRow::compute, forward ? "forward" : "backward",
                            About{units_.visits[visit.module].name});
  if (forward && recorded == Recorded::yes) visits_.open(visit.module);
}

void Engine::after(const Visit& visit) {
  pass_.visits.pop_back();
  if (visit.direction == Visit::Direction::forward) return;
  for (const std::size_t u : visits_.close(visit.module)) reduce(u);
}

void Engine::use(const std::vector<std::size_t>& units, Visit::Direction direction) {
  snapshot_.advance();
  step_and_fetch(weights_.visit({weights_.visit_of(units), direction}));
}

void Engine::begin_backward(const Tensor& loss) {
  norm_.add_loss(loss.view(), micro_step_);
  // Units that this pass does not use must not meet new gradients before their step.
  count_late(late_, collectives_, [&] { steps_.finish(); });
  steps_.wait_for_host();
  if (!plan_.steps_in_backward() || !micro_step_.last()) return;
  if (!rate_.expected)
    throw Error("engine: steps in the backward pass need the learning rate before it: call expect_rate()");
  rate_.in_backward = *rate_.expected;
  steps_.begin_in_backward({steps_taken_ + 1, rate_.in_backward});  // step() counts it after the pass
}

void Engine::reduce(std::size_t u) {
  if (!reducer_.close(u)) return;
  while (!reducer_.has_room_for(u)) finish_reduction();
  reducer_.start(u);
  const bool nothing_to_wait_for = plan_.steps_in_backward() && plan_.ranks.alone;
  if (plan_.options.prefetch_bytes == 0 || nothing_to_wait_for) finish_reduction();
}

// Steps inside the backward pass come between two reductions: a unit is stepped when its gradients have come to where
// they are stepped, at the latest before the next unit's are kept.
void Engine::finish_reduction() {
  if (!reducer_.under_way()) return;
  reducer_.wait_for_oldest();
  steps_.ready(reducer_.take_complete());
  reducer_.keep_oldest();
  if (!reducer_.leaving()) steps_.ready(reducer_.take_complete());
}

void Engine::end_micro_step() {
  for (std::size_t u = 0; u < plan_.units.size(); ++u) reduce(u);  // those that this pass did not visit
  visits_.clear();
  while (reducer_.under_way()) finish_reduction();
  steps_.ready(reducer_.take_complete());
  reducer_.end();
  weights_.end_pass();
  weights_.release_all();
  if (plan_.steps_in_backward() && micro_step_.last()) {
    weights_.drop_cache();
    weights_.await_always_there();  // the new weights
  }
  ++micro_step_.number;
}

void Engine::begin_inference() {
  pass_.kind = PassKind::inference;
  if (plan_.options.use == Use::infer) set_weights_stay(Device::current().compute, plan_.fetches_nothing());
  settled_ = false;
  step_and_fetch(weights_.begin_pass(pass_.kind));
}

void Engine::end_inference(Then then) {
  weights_.end_pass();
  if (then == Then::another)
    weights_.run_ahead(pass_.kind);
  else
    weights_.release_all();
  pass_.kind = PassKind::training;  // whoever abandons a pass now means the step's
}

// Some units may have added this micro-step's gradients to the step's sum and others not: the sum is of no use, and the
// step starts again. Memory is free only when nothing works on it any more, so all that is on its way is waited for.
void Engine::abandon_pass() {
  pass_.visits.clear();
  if (pass_.kind == PassKind::training) {
    micro_step_.number = 0;
    visits_.clear();
    outlast_transfers(weights_, reducer_, steps_);
    reducer_.abandon();
    norm_.abandon();
    steps_.abandon();
    FirstFailure told;
    told.outlast([&] { weights_.await_always_there(); });
  }
  weights_.release_all();  // a step would not renew what is still gathered
  if (pass_.kind == PassKind::training) weights_.drop_cache();
}

float Engine::clip_to(float clip, float scale) {
  if (micro_step_.number != micro_step_.count)
    throw Error("engine: clip_to() after {} of {} micro-steps", micro_step_.number, micro_step_.count);
  return norm_.finish_clipped_to(clip, scale);
}

StepResult Engine::step(const StepRules& rules, float note) {
  check_rules(rules, units_, plan_);
  if (micro_step_.number != micro_step_.count)
    throw Error("engine: step() after {} of {} micro-steps", micro_step_.number, micro_step_.count);
  const Span span(timeline_, TimelineRow::compute, "step");
  micro_step_.number = 0;
  settled_ = false;
  rate_.expected.reset();
  const bool in_backward = plan_.steps_in_backward();
  if (in_backward && rules.rate != rate_.in_backward) {
    ++steps_taken_;  // it has been taken
    throw Error("engine: step() with the rate {}, but expect_rate() with {}", rules.rate, rate_.in_backward);
  }
  weights_.drop_cache();
  if (const auto depths = std::exchange(next_depths_, {})) {
    weights_.set_prefetch_bytes(depths->prefetch_bytes);
    buffers_.set_reach(depths->pieces_under_way);
    steps_.set_host_share(depths->host_share);
  }
  norm_.finish(note);
  reducer_.gather_rest();
  if (plan_.options.on_nan == OnNan::skip) norm_.hold_back();
  const StepContext context{++steps_taken_, rules};
  const bool any_deferred = !plan_.deferred.empty();
  if (!in_backward)
    for (std::size_t u = 0; u < plan_.units.size(); ++u) store_.wait_params_written(u);
  const std::vector<bool> first = weights_.wanted_first();
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    if (!in_backward) steps_.step_now(u, context);
    if (!any_deferred && first[u]) weights_.fetch_early(u);  // on its way while the next units are stepped
  }
  const bool skipped = norm_.take().skip != 0;
  if (skipped) reducer_.settle();  // no step waits for sums that the next gradients are written over
  if (any_deferred) {
    if (!in_backward && !skipped) steps_.ready_all(context);
    for (std::size_t u = 0; u < plan_.units.size(); ++u)
      if (!plan_.units[u].visited) steps_.until(u);
    for (std::size_t u = 0; u < plan_.units.size(); ++u) {
      if (!first[u]) continue;
      steps_.until(u);
      weights_.fetch_early(u);
    }
  }
  weights_.await_always_there();

  collectives_.check();  // the control has come: so has all that it was computed from; the rest the next step checks
  if (skipped && !in_backward) --steps_taken_;
  return result_of(norm_, plan_, skipped);
}

// Weights are read one by one, each after settle(): only the first has anything to wait for.
void Engine::settle(Settled what) {
  if (settled_) return;
  count_late(late_, collectives_, [&] { steps_.finish(); });
  if (what == Settled::weights) {
    steps_.wait_for_host();
    for (std::size_t u = 0; u < plan_.units.size(); ++u) store_.wait_params_written(u);
    return weights_.settle();
  }
  if (Device::current().lower) Device::current().lower->drain();
  store_.drain();
  weights_.settle();
  reducer_.settle();
  if (!plan_.ranks.alone) {
    Device::current().compute.synchronize();
    collectives_.check();
  }
  settled_ = true;
}

void Engine::set_depths(const Depths& depths) {
  const EngineOptions& options = plan_.options;
  if ((depths.prefetch_bytes == 0) != (options.prefetch_bytes == 0))
    throw Error("engine: prefetch of {} bytes where it was {}: overlap cannot be turned on or off in a run",
                depths.prefetch_bytes, options.prefetch_bytes);
  const bool given = options.host_share > 0;  // the device has room for the rest alone
  if (!(depths.host_share >= 0 && depths.host_share <= 1) || (given && depths.host_share != options.host_share))
    throw Error("engine: a share of {} stepped by the host: must be {}", depths.host_share,
                given ? fmt::format("{}, as it was at first", options.host_share) : "from 0 to 1");
  next_depths_ = depths;
}

Engine::Account Engine::moved() const { return {moved_so_far(collectives_) - late_ - weights_.moved_early(), late_}; }

Stalls Engine::stalls() const {
  Stalls stalls{.gather = collectives_.stalled_seconds(),
                .step = steps_.stalled_seconds() + snapshot_.stalled_seconds()};
  if (const LowerTiers* lower = Device::current().lower) {
    stalls.host = lower->stalled_seconds(Place::host);
    stalls.nvme = lower->stalled_seconds(Place::nvme);
  }
  return stalls;
}

}  // namespace zeepo
