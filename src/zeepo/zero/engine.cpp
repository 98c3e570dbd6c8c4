// Setting the engine up, and its passes: parameters come and go around each visit.
#include "zeepo/zero/engine.h"

#include <algorithm>

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/softmax.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// Units whose gathering is not worth it stay whole, as long as they are this small a part of the model together.
constexpr double kPersistentShare = 0.001;

}  // namespace

Engine::Engine(Module& model, Communicator& communicator, const EngineOptions& options)
    : options_(options),
      collectives_(communicator, options.prefetch_bytes > 0 ? Collectives::Overlap::yes : Collectives::Overlap::no),
      plan_(plan_units(model, options.blocks_per_unit)) {
  if (options.accumulation < 1) throw Error("engine: accumulation {}: must be at least 1", options.accumulation);
  if (options.stage < 0 || options.stage > 3) throw Error("engine: stage {}: must be 0, 1, 2 or 3", options.stage);
  if (options.reduce == Reduce::last && options.stage > 1)
    throw Error("engine: stage {} keeps no whole gradients to sum before reducing; use stage 0 or 1, or reduce each",
                options.stage);
  if (options.use == Use::train && options.dtype == DType::f16) loss_scale_ = LossScale(options.loss_scale);
  for (const auto& unit : plan_.units)
    for (const auto& named : unit.parameters) parameter_count_ += named.parameter->elements();

  states_.resize(plan_.units.size());
  std::vector<bool> visited(plan_.units.size());
  for (const auto& visit : plan_.visits)
    for (const std::size_t unit : visit.units) visited[unit] = true;
  for (std::size_t u = 0; u < visited.size(); ++u)
    if (!visited[u]) always_there_.push_back(u);
  std::int64_t blocks = 0;
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    const Unit& unit = plan_.units[u];
    keep(states_[u], unit, options.stage < 3 || collectives_.alone() || !visited[u] || persistent(unit));
    place_parameters(u);
    blocks += norm_blocks(states_[u].own.elements());
  }
  planner_ = std::make_unique<PassPlanner>(planner_options());
  for (std::size_t i = 0; i < plan_.visits.size(); ++i) {
    Module& module = *plan_.visits[i].module;
    visits_[&module] = i;
    module.attach(this);
    module.set_checkpointed(options.activation_checkpointing && module.is_checkpointable());
  }
  if (options.use == Use::infer) return;
  loss_ = Tensor({1}, DType::f32, Kind::working);
  norm_partials_ = Tensor({collectives_.size() * blocks}, DType::f32, Kind::working);
  control_ = Tensor({sizeof(StepControl) / sizeof(float)}, DType::f32, Kind::working);
}

Engine::~Engine() {
  for (const auto& visit : plan_.visits) {
    visit.module->attach(nullptr);
    visit.module->set_checkpointed(false);
  }
  for (const auto& unit : plan_.units)
    for (const auto& named : unit.parameters) {
      named.parameter->leaf().set_current({});
      named.parameter->leaf().set_store(nullptr);
      named.parameter->leaf().take();
    }
}

bool Engine::persistent(const Unit& unit) const {
  const auto share = static_cast<double>(unit.elements) / static_cast<double>(parameter_count_);
  return share * static_cast<double>(plan_.units.size()) <= kPersistentShare;
}

void Engine::keep(UnitState& state, const Unit& unit, bool params_whole) {
  state.own = shard_of(unit.elements, collectives_.rank(), collectives_.size(), Unit::kAlignment);
  state.whole = {0, state.own.elements() * collectives_.size()};
  state.params = zeros(params_whole ? state.whole : state.own, options_.dtype, Kind::params);
  if (params_whole) state.gathered = state.params.tensor;
  if (options_.use == Use::infer) return;
  state.stepped = options_.stage == 0 ? state.whole : state.own;
  if (options_.dtype == DType::bf16) state.low = zeros(state.stepped, DType::i16, Kind::optimizer);
  if (options_.dtype == DType::f16) state.low = zeros(state.stepped, DType::f32, Kind::optimizer);
  for (int i = 0; i < state_count(options_.optimizer); ++i)
    state.moments.push_back(zeros(state.stepped, DType::f32, Kind::optimizer));
  const bool grads_whole = options_.stage == 0 || reduces_in_place();
  state.grads = zeros(grads_whole ? state.whole : state.own, options_.accumulation > 1 ? DType::f32 : options_.dtype,
                      Kind::grads);
  if (sums_locally()) state.local_sum = zeros(state.whole, DType::f32, Kind::grads);
}

void Engine::place_parameters(std::size_t u) {
  for (const auto& [prefix, parameter, offset] : plan_.units[u].parameters) {
    Leaf& leaf = parameter->leaf();
    leaf.set_dtype(options_.dtype);
    leaf.set_store(this);
    places_[&leaf] = {u, offset};
    std::int64_t at = offset;
    for (const auto& [name, shape] : parameter->slices()) {
      const auto full_name = prefix + name;
      if (!slices_.emplace(full_name, SlicePlace{{full_name, shape, parameter}, {u, at}}).second)
        throw Error("engine: two parameters are named {}", full_name);
      at += shape.elements();
    }
  }
  if (states_[u].gathered.defined()) show(u, true);
}

PassPlanner::Options Engine::planner_options() const {
  PassPlanner::Options planner{.units_of_module = {}, .unit_bytes = {}, .prefetch_bytes = options_.prefetch_bytes};
  for (const auto& visit : plan_.visits) planner.units_of_module.push_back(visit.units);
  for (const auto& state : states_) {
    const auto bytes = state.whole.elements() * static_cast<std::int64_t>(size_of(options_.dtype));
    planner.unit_bytes.push_back(state.params_whole() ? 0 : bytes);
  }
  return planner;
}

Label Engine::label(const char* what, std::size_t unit) const {
  return {fmt::format("{} of {}", what, plan_.units[unit].name), static_cast<std::int64_t>(unit)};
}

void Engine::show(std::size_t u, bool there) {
  for (const auto& [prefix, parameter, offset] : plan_.units[u].parameters)
    parameter->leaf().set_current(there ? states_[u].gathered.part(offset, parameter->shape()) : Tensor());
}

void Engine::fetch(std::size_t u) {
  UnitState& state = states_[u];
  if (state.gathered.defined()) return;
  state.gathered = Tensor({state.whole.elements()}, options_.dtype, Kind::working);
  state.gathering = collectives_.all_gather(state.params.tensor.view(), state.gathered.view(), label("parameters", u));
}

void Engine::await(std::size_t u) {
  collectives_.wait(states_[u].gathering);
  show(u, true);
}

void Engine::release(std::size_t u) {
  UnitState& state = states_[u];
  if (state.params_whole() || !state.gathered.defined()) return;
  collectives_.wait(state.gathering);
  show(u, false);
  state.gathered = {};
}

void Engine::hold(const PassPlanner::Wanted& wanted) {
  std::vector<bool> kept(states_.size());
  for (const auto* units : {&wanted.now, &wanted.ahead})
    for (const std::size_t u : *units) kept[u] = true;
  for (std::size_t u = 0; u < states_.size(); ++u)
    if (!kept[u]) release(u);
  for (const auto* units : {&wanted.now, &wanted.ahead})
    for (const std::size_t u : *units) fetch(u);
  for (const std::size_t u : wanted.now) await(u);
}

void Engine::begin_pass(int kind) {
  sent_early_bytes_ = 0;
  hold(planner_->begin(kind));
}

void Engine::end_pass() {
  planner_->end();
  hold({});
}

void Engine::before_forward(Module& module) {
  const std::size_t visit = visits_.at(&module);
  hold(planner_->visit({visit, Visit::Direction::forward}));
  if (!Tape::current()) return;
  for (const std::size_t unit : plan_.visits[visit].units) ++states_[unit].open_visits;
}

void Engine::before_backward(Module& module) {
  hold(planner_->visit({visits_.at(&module), Visit::Direction::backward}));
}

void Engine::after_backward(Module& module) {
  for (const std::size_t unit : plan_.visits[visits_.at(&module)].units)
    if (--states_[unit].open_visits == 0) reduce(unit);
}

void Engine::micro_step(const std::function<Tensor()>& loss) {
  if (options_.use != Use::train) throw Error("engine: made for inference, asked to train");
  if (micro_steps_ == options_.accumulation)
    throw Error("engine: more than {} micro-steps before step()", micro_steps_);
  try {
    train_pass(loss);
  } catch (...) {
    abandon_step();
    throw;
  }
  ++micro_steps_;
}

void Engine::train_pass(const std::function<Tensor()>& loss) {
  const float mean = 1.0f / static_cast<float>(options_.accumulation * collectives_.size());
  Tape tape(loss_scale_.value() * mean);
  begin_pass(kTraining);
  Tensor value;
  {
    const TapeScope scope(&tape);
    value = loss();
  }
  launch([&](auto& s) { sum(s, value.view(), mean, loss_.view(), micro_steps_ > 0); });
  tape.backward(value);
  for (std::size_t u = 0; u < states_.size(); ++u) {
    if (!states_[u].reduced) reduce(u);
    states_[u].reduced = false;
    states_[u].open_visits = 0;
  }
  finish_reduction();
  end_pass();
}

// Some units may have added this micro-step's gradients to the step's sum and others not: the sum is of no use, and the
// step starts again. Memory is free only when nothing works on it any more, so all that is on its way is waited for.
void Engine::abandon_step() {
  const auto outlast = [this](Completion& completion) {
    try {
      collectives_.wait(completion);
    } catch (const std::exception&) {  // not to hide what ended the pass: every later collective throws the same
    }
  };
  micro_steps_ = 0;
  for (auto& reduction : reductions_) outlast(reduction.done);
  reductions_.clear();
  for (std::size_t u = 0; u < states_.size(); ++u) {
    UnitState& state = states_[u];
    outlast(state.gathering);
    outlast(state.grads_gathering);
    for (const auto& named : plan_.units[u].parameters) named.parameter->leaf().take();
    state.pending = {};
    state.open_visits = 0;
    state.reduced = false;
  }
  hold({});
}

CommBytes Engine::sent() const {
  CommBytes sent = collectives_.sent();
  sent.all_gather -= sent_early_bytes_;
  return sent;
}

void Engine::settle() {
  for (auto& state : states_) {
    collectives_.wait(state.gathering);
    collectives_.wait(state.grads_gathering);
  }
}

void Engine::infer(const std::function<void()>& f) {
  const TapeScope none(nullptr);
  begin_pass(kInference);
  try {
    f();
  } catch (...) {
    hold({});  // a step would not renew what is still gathered
    throw;
  }
  end_pass();
}

}  // namespace zeepo
