// Setting the engine up, and its passes: parameters come and go around each visit.
#include "zeepo/zero/engine.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/softmax.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Engine::Engine(Module& model, Communicator& communicator, const EngineOptions& options)
    : options_(options),
      lower_(Device::current().lower),
      timeline_(Device::current().timeline),
      collectives_(communicator, options.prefetch_bytes > 0 ? Collectives::Overlap::yes : Collectives::Overlap::no),
      plan_(plan_units(model, options.blocks_per_unit)),
      places_(plan_) {
  check_options();
  if (options.use == Use::train && options.dtype == DType::f16) loss_scale_ = LossScale(options.loss_scale);
  for (const auto& unit : plan_.units)
    for (const auto& named : unit.parameters) parameter_count_ += named.parameter->elements();

  states_.resize(plan_.units.size());
  std::vector<bool> visited(plan_.units.size());
  for (const auto& visit : plan_.visits)
    for (const std::size_t unit : visit.units) visited[unit] = true;
  for (std::size_t u = 0; u < visited.size(); ++u)
    if (!visited[u]) always_there_.push_back(u);
  Dealers deal{Dealer(params_shares()), Dealer(options.placement.optimizer)};
  std::int64_t blocks = 0, weights = 0;
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    const Unit& unit = plan_.units[u];
    UnitState& state = states_[u];
    state.first_weight = std::exchange(weights, weights + unit.elements);
    keep(state, unit, !visited[u] || persistent(unit), deal);
    attach_parameters(u);
    if (!state.trained) continue;
    state.first_norm_block = blocks;
    blocks += norm_blocks(state.own.elements());
  }
  order_pieces(visited);
  make_slots();
  make_cache();
  planner_ = std::make_unique<PassPlanner>(planner_options());
  open_visits_.resize(plan_.visits.size());
  const bool checkpointing = options.activation_checkpointing || options.placement.activations != Place::device;
  for (std::size_t i = 0; i < plan_.visits.size(); ++i) {
    Module& module = *plan_.visits[i].module;
    visits_[&module] = i;
    module.attach(this);
    module.set_checkpointed(checkpointing && module.is_checkpointable());
  }
  if (options.use == Use::infer) return;
  if (options.placement.activations != Place::device)
    activations_ = std::make_unique<ActivationStore>(*lower_, options.placement.activations);
  loss_ = Tensor({1}, DType::f32, Kind::working);
  norm_partials_ = Tensor({collectives_.size() * std::max<std::int64_t>(blocks, 1)}, DType::f32, Kind::working);
  control_ = Tensor({sizeof(StepControl) / sizeof(float)}, DType::f32, Kind::working);
  launch([&](auto& s) { control_memory_ = transfer_memory(s, "host", sizeof(StepControl) + sizeof(float)); });
  if (!steps_in_backward()) return;
  unit_controls_ = Tensor({control_.elements() * static_cast<std::int64_t>(states_.size())}, DType::f32, Kind::working);
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
  outlast_transfers();  // they work on memory that goes now
}

// A failure is not told here: either something worse has happened, or every later transfer throws the same.
void Engine::outlast_transfers() noexcept {
  const auto outlast = [](const auto& wait) {
    try {
      wait();
    } catch (const std::exception&) {
    }
  };
  for (auto& state : states_)
    for (Collecting* collecting : {&state.gathering, &state.grads_gathering})
      outlast([&] { collectives_.wait(*collecting); });
  for (auto& reduction : reductions_) outlast([&] { collectives_.wait(reduction.done); });
  outlast([&] {
    if (host_stepper_) host_stepper_->drain();
  });
  outlast([&] {
    if (lower_) lower_->drain();
  });
}

Stream& Engine::host_stream() const { return lower_ ? lower_->host_stream() : Device::current().compute; }

Label Engine::label(const char* what, std::size_t unit) const {
  return {fmt::format("{} of {}", what, plan_.units[unit].name), static_cast<std::int64_t>(unit)};
}

void Engine::show(std::size_t u, bool there) {
  for (const auto& [prefix, parameter, offset] : plan_.units[u].parameters)
    parameter->leaf().set_current(there ? states_[u].gathered.part(offset, parameter->shape()) : Tensor());
}

void Engine::fetch(std::size_t u) {
  step_later_pieces(later_end_[u]);
  UnitState& state = states_[u];
  if (state.gathered.defined()) return;
  state.gathered = Tensor({state.whole.elements()}, options_.dtype, Kind::working);
  const Tensor own = state.gathered.part(state.own.begin, {state.own.elements()});
  if (state.params_block.defined()) {
    state.arriving = lower_->to_device(state.params_block, 0, own.view().data, own.view().bytes(),
                                       about("parameters", u), std::exchange(state.parameters_written, {}));
    state.gathering =
        collectives_.all_gather(own.view(), state.gathered.view(), label("parameters", u), {state.arriving});
  } else {
    state.gathering = collectives_.all_gather(state.params.tensor.view(), state.gathered.view(), label("parameters", u),
                                              state.parameters_written);
  }
}

void Engine::await(std::size_t u) {
  UnitState& state = states_[u];
  for (auto& written : std::exchange(state.parameters_written, {})) lower_->wait(written, Place::host);
  if (state.params_block.defined()) lower_->wait(state.arriving, state.params_place);
  collectives_.wait(state.gathering);
  show(u, true);
}

void Engine::release(std::size_t u) {
  UnitState& state = states_[u];
  if (state.params_whole || !state.gathered.defined()) return;
  state.arriving.wait();
  collectives_.wait(state.gathering);
  show(u, false);
  state.gathered = {};
}

std::int64_t Engine::gathered_bytes(std::size_t u) const {
  return states_[u].whole.elements() * static_cast<std::int64_t>(size_of(options_.dtype));
}

// Of a unit that was used and lives below, as much as the cache holds stays.
void Engine::let_go(std::size_t u) {
  const UnitState& state = states_[u];
  if (cache_bytes_ == 0 || !state.params_block.defined()) return release(u);
  if (!state.gathered.defined() || std::ranges::count(cached_, u) > 0) return;
  cached_.push_back(u);
  cached_bytes_ += gathered_bytes(u);
  for (; cached_bytes_ > cache_bytes_; cached_.pop_front()) {
    cached_bytes_ -= gathered_bytes(cached_.front());
    release(cached_.front());
  }
}

// New weights: what is cached is of the old ones.
void Engine::drop_cache() {
  for (const std::size_t u : std::exchange(cached_, {})) release(u);
  cached_bytes_ = 0;
}

void Engine::hold(const PassPlanner::Wanted& wanted) {
  std::vector<bool> kept(states_.size());
  for (const auto* units : {&wanted.now, &wanted.ahead})
    for (const std::size_t u : *units) kept[u] = true;
  cached_bytes_ -= std::accumulate(cached_.begin(), cached_.end(), std::int64_t{0},
                                   [&](std::int64_t sum, std::size_t u) { return sum + kept[u] * gathered_bytes(u); });
  std::erase_if(cached_, [&](std::size_t u) { return kept[u]; });
  for (std::size_t u = 0; u < states_.size(); ++u)
    if (!kept[u]) let_go(u);
  for (const auto* units : {&wanted.now, &wanted.ahead})
    for (const std::size_t u : *units) fetch(u);
  step_ahead(wanted.now);
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
  visiting_.emplace_back(timeline_, TimelineRow::compute, "forward", About{plan_.visits[visit].name});
  if (activations_) activations_->set_owner(plan_.visits[visit].name);
  if (!Tape::current()) return;
  ++open_visits_[visit];
  for (const std::size_t unit : plan_.visits[visit].units) ++states_[unit].open_visits;
}

void Engine::after_forward(Module&) { visiting_.pop_back(); }

void Engine::before_backward(Module& module) {
  const std::size_t visit = visits_.at(&module);
  hold(planner_->visit({visit, Visit::Direction::backward}));
  visiting_.emplace_back(timeline_, TimelineRow::compute, "backward", About{plan_.visits[visit].name});
}

void Engine::after_backward(Module& module) {
  visiting_.pop_back();
  const std::size_t index = visits_.at(&module);
  const UnitVisit& visit = plan_.visits[index];
  --open_visits_[index];
  // A checkpointed block visits its tiles anew in each of its backward visits: only the last of these is the last.
  const bool again = visit.around && open_visits_[*visit.around] > 1;
  for (const std::size_t unit : visit.units)
    if (--states_[unit].open_visits == 0 && !again) reduce(unit);
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
    std::optional<SaveHookScope> saving;
    if (activations_) saving.emplace(*activations_);
    value = loss();
  }
  launch([&](auto& s) { sum(s, value.view(), mean, loss_.view(), micro_steps_ > 0); });
  step_all_later_pieces();  // units that this pass does not use must not meet new gradients before their step
  finish_host_steps();
  if (steps_in_backward() && last_micro_step()) begin_steps_in_backward();
  tape.backward(value);
  for (std::size_t u = 0; u < states_.size(); ++u) {
    if (!states_[u].reduced) reduce(u);
    states_[u].reduced = false;
    states_[u].open_visits = 0;
  }
  std::ranges::fill(open_visits_, 0);
  while (!reductions_.empty()) finish_reduction();
  step_reduced();
  finish_leaving();
  const bool updated = (steps_in_backward() && last_micro_step()) || update_waits_;
  update_waits_ = false;
  end_pass();
  if (!updated) return;
  drop_cache();
  for (const std::size_t u : always_there_) await(u);  // of the new weights
}

// Some units may have added this micro-step's gradients to the step's sum and others not: the sum is of no use, and the
// step starts again. Memory is free only when nothing works on it any more, so all that is on its way is waited for.
void Engine::abandon_step() {
  micro_steps_ = 0;
  std::ranges::fill(open_visits_, 0);
  visiting_.clear();
  outlast_transfers();
  reductions_.clear();
  in_queue_.clear();
  to_gather_.clear();
  leaving_.clear();
  abandon_steps_in_backward();
  outlast_transfers();  // what that has sent
  for (std::size_t u = 0; u < states_.size(); ++u) {
    UnitState& state = states_[u];
    for (const auto& named : plan_.units[u].parameters) named.parameter->leaf().take();
    state.pending = {};
    state.open_visits = 0;
    state.reduced = false;
  }
  try {
    for (const std::size_t u : always_there_) await(u);
  } catch (const std::exception&) {
  }
  hold({});
  drop_cache();
}

CommBytes Engine::sent() const {
  CommBytes sent = collectives_.sent();
  sent.all_gather -= sent_early_bytes_;
  return sent;
}

Stalls Engine::stalls() const {
  Stalls stalls{.gather = collectives_.stalled_seconds(), .step = step_seconds_};
  if (lower_) {
    stalls.host = lower_->stalled_seconds(Place::host);
    stalls.nvme = lower_->stalled_seconds(Place::nvme);
  }
  return stalls;
}

void Engine::settle() {
  finish_update();
  step_all_later_pieces();
  if (lower_) lower_->drain();
  for (auto& state : states_) {
    for (auto& written : state.parameters_written) written.wait();
    for (auto& piece : state.pieces) piece.written.wait();
    collectives_.wait(state.gathering);
    collectives_.wait(state.grads_gathering);
  }
  if (collectives_.alone()) return;
  Device::current().compute.synchronize();
  collectives_.check();
}

void Engine::set_depths(const Depths& depths) {
  if ((depths.prefetch_bytes == 0) != (options_.prefetch_bytes == 0))
    throw Error("engine: prefetch of {} bytes where it was {}: overlap cannot be turned on or off in a run",
                depths.prefetch_bytes, options_.prefetch_bytes);
  const bool given = options_.host_share > 0;  // the device has room for the rest alone
  if (!(depths.host_share >= 0 && depths.host_share <= 1) || (given && depths.host_share != options_.host_share))
    throw Error("engine: a share of {} stepped by the host: must be {}", depths.host_share,
                given ? fmt::format("{}, as it was at first", options_.host_share) : "from 0 to 1");
  next_depths_ = depths;
}

void Engine::turn_to_next_depths() {
  if (!next_depths_) return;
  options_.prefetch_bytes = next_depths_->prefetch_bytes;
  planner_->set_prefetch_bytes(next_depths_->prefetch_bytes);
  if (slots_) slots_->set_reach(next_depths_->pieces_under_way);
  if (host_stepper_ && next_depths_->host_share != dealt_share_) {  // the slots start anew, with other pieces
    forget_read_ahead();
    used_slots_ = read_slots_ = read_grads_ = slots_end_ = 0;
    deal_sides(next_depths_->host_share);
  }
  next_depths_.reset();
}

void Engine::sum_over_ranks(std::span<float> numbers) {
  const Tensor sum = Tensor::from<float>(numbers, {static_cast<std::int64_t>(numbers.size())});
  collectives_.all_reduce(sum.view(), {"measurements", 0});
  std::ranges::copy(sum.to_floats(), numbers.begin());
  collectives_.check();
}

void Engine::infer(const std::function<void()>& f) {
  const TapeScope none(nullptr);
  begin_pass(kInference);
  try {
    f();
  } catch (...) {
    visiting_.clear();
    hold({});  // a step would not renew what is still gathered
    throw;
  }
  end_pass();
}

}  // namespace zeepo
