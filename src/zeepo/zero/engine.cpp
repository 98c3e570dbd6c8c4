#include "zeepo/zero/engine.h"

#include <algorithm>

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/softmax.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

std::int64_t norm_blocks(std::int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

}  // namespace

Engine::Engine(Module& model, Communicator& communicator, const EngineOptions& options)
    : options_(options), communicator_(communicator), model_(model), plan_(plan_units(model)) {
  if (communicator.size() != 1) throw Error("engine: {} ranks: must be 1", communicator.size());
  if (options.accumulation < 1) throw Error("engine: accumulation {}: must be at least 1", options.accumulation);
  if (options.use == Use::train && options.dtype == DType::f16) loss_scale_ = LossScale(options.loss_scale);

  states_.resize(plan_.units.size());
  std::int64_t blocks = 0;
  for (std::size_t u = 0; u < plan_.units.size(); ++u) {
    const Unit& unit = plan_.units[u];
    allocate(states_[u], unit);
    blocks += norm_blocks(unit.elements);
    for (const auto& [prefix, parameter, offset] : unit.parameters) {
      Leaf& leaf = parameter->leaf();
      leaf.set_dtype(options.dtype);
      leaf.set_store(this);
      leaf.set_current(states_[u].params.part(offset, parameter->shape()));
      places_[&leaf] = {u, offset};
      parameter_count_ += parameter->elements();
      std::int64_t at = offset;
      for (const auto& [name, shape] : parameter->slices()) {
        const auto full_name = prefix + name;
        if (!slices_.emplace(full_name, SlicePlace{{full_name, shape, parameter}, {u, at}}).second)
          throw Error("engine: two parameters are named {}", full_name);
        at += shape.elements();
      }
    }
  }
  for (const auto& visit : plan_.visits) {
    visits_[visit.module] = &visit;
    visit.module->attach(this);
    visit.module->set_checkpointed(options.activation_checkpointing && visit.module->is_checkpointable());
  }
  if (options.use == Use::infer) return;
  loss_ = Tensor({1}, DType::f32, Kind::working);
  norm_partials_ = Tensor({blocks}, DType::f32, Kind::working);
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

void Engine::allocate(UnitState& state, const Unit& unit) {
  const auto zeros = [&](DType dtype, Kind kind) {
    const Tensor flat({unit.elements}, dtype, kind);
    launch([&](auto& s) { fill(s, flat.view(), 0); });
    return flat;
  };
  state.params = zeros(options_.dtype, Kind::params);
  if (options_.use == Use::infer) return;
  if (options_.dtype == DType::bf16) state.low = zeros(DType::i16, Kind::optimizer);
  if (options_.dtype == DType::f16) state.low = zeros(DType::f32, Kind::optimizer);
  state.grads = zeros(options_.accumulation > 1 ? DType::f32 : options_.dtype, Kind::grads);
  for (int i = 0; i < state_count(options_.optimizer); ++i) state.moments.push_back(zeros(DType::f32, Kind::optimizer));
}

void Engine::clear_padding(const Unit& unit, const Tensor& flat) {
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const std::int64_t begin = unit.parameters[i].offset + unit.parameters[i].parameter->elements();
    const std::int64_t end = i + 1 < unit.parameters.size() ? unit.parameters[i + 1].offset : unit.elements;
    if (begin < end) launch([&](auto& s) { fill(s, flat.part(begin, {end - begin}).view(), 0); });
  }
}

void Engine::before_forward(Module& module) {
  if (!Tape::current()) return;
  for (const std::size_t unit : visits_.at(&module)->units) ++states_[unit].open_visits;
}

void Engine::after_backward(Module& module) {
  for (const std::size_t unit : visits_.at(&module)->units)
    if (--states_[unit].open_visits == 0) reduce(unit);
}

Gradient::Target Engine::gradient_of(const Leaf& leaf) {
  const Place& place = places_.at(&leaf);
  UnitState& state = states_[place.unit];
  if (options_.accumulation == 1)  // one micro-step on one rank: its gradients are the step's
    return {state.grads.part(place.offset, leaf.shape()), Write::overwrite};
  if (!state.pending.defined()) {
    const Unit& unit = plan_.units[place.unit];
    state.pending = Tensor({unit.elements}, options_.dtype, Kind::working);
    clear_padding(unit, state.pending);
  }
  return {state.pending.part(place.offset, leaf.shape()), Write::overwrite};
}

void Engine::reduce(std::size_t u) {
  UnitState& state = states_[u];
  for (const auto& named : plan_.units[u].parameters) {
    Leaf& leaf = named.parameter->leaf();
    if (leaf.written()) {
      leaf.take();
    } else {  // not used in this pass, or frozen
      const Tensor unused = gradient_of(leaf).tensor;
      launch([&](auto& s) { fill(s, unused.view(), 0); });
    }
  }
  state.reduced = true;
  if (options_.accumulation == 1) return;
  communicator_.reduce_scatter(Device::current().compute, state.pending.view(), state.pending.view());
  launch([&](auto& s) {
    if (micro_steps_ == 0)
      copy(s, state.pending.view(), state.grads.view());
    else
      add(s, state.grads.view(), state.pending.view(), state.grads.view());
  });
  state.pending = {};
}

void Engine::micro_step(const std::function<Tensor()>& loss) {
  if (options_.use != Use::train) throw Error("engine: made for inference, asked to train");
  if (micro_steps_ == options_.accumulation)
    throw Error("engine: more than {} micro-steps before step()", micro_steps_);
  const float mean = 1.0f / static_cast<float>(options_.accumulation);
  Tape tape(loss_scale_.value() * mean);
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
  ++micro_steps_;
}

StepResult Engine::step(double lr) {
  if (micro_steps_ != options_.accumulation)
    throw Error("engine: step() after {} of {} micro-steps", micro_steps_, options_.accumulation);
  micro_steps_ = 0;
  std::int64_t first_block = 0;
  for (std::size_t u = 0; u < states_.size(); ++u) {
    const std::int64_t blocks = norm_blocks(plan_.units[u].elements);
    const Tensor partials = norm_partials_.part(first_block, {blocks});
    launch([&](auto& s) { sum_squares(s, states_[u].grads.view(), partials.view()); });
    first_block += blocks;
  }
  launch([&](auto& s) { finish_norm(s, norm_partials_.view(), loss_scale_.value(), options_.clip, control_.view()); });
  ++steps_;
  for (std::size_t u = 0; u < states_.size(); ++u) step_unit(u, control_.view(), lr);

  const auto control = control_.to_floats();
  StepResult result{loss_.item(), control[0], control[2] != 0, loss_scale_.value()};
  if (result.skipped) {
    --steps_;
    if (!loss_scale_.dynamic())
      throw Error(
          "step: a gradient is infinite or not a number (loss {}); the weights are as before this step. Lower "
          "--lr, or look for broken weights or data",
          result.loss);
  }
  loss_scale_.update(result.skipped);
  return result;
}

void Engine::step_unit(std::size_t u, ConstView control, double lr) {
  const UnitState& state = states_[u];
  const auto& parameters = plan_.units[u].parameters;
  const auto decays = [&](const Parameter& p) { return options_.decay == Decay::all || p.shape().rank() >= 2; };
  const auto step_range = [&](std::int64_t begin, std::int64_t end, bool decay) {
    std::vector<View> moments;
    for (const auto& moment : state.moments) moments.push_back(moment.part(begin, {end - begin}).view());
    zeepo::step(options_.optimizer,
                {.weights = weights(state, begin, end - begin),
                 .grad = state.grads.part(begin, {end - begin}).view(),
                 .states = moments,
                 .weight_decay = decay ? options_.optimizer.weight_decay : 0},
                control, steps_, lr);
  };
  // Neighbours that decay alike are stepped together, the padding between them too: it is zero and stays so.
  std::size_t first = 0;
  while (first < parameters.size()) {
    std::size_t next = first + 1;
    const auto alike = [&](std::size_t i) {
      const Parameter &a = *parameters[first].parameter, &b = *parameters[i].parameter;
      return decays(a) == decays(b) && a.leaf().trainable() == b.leaf().trainable();
    };
    while (next < parameters.size() && alike(next)) ++next;
    const std::int64_t end = next < parameters.size() ? parameters[next].offset : plan_.units[u].elements;
    if (parameters[first].parameter->leaf().trainable())
      step_range(parameters[first].offset, end, decays(*parameters[first].parameter));
    first = next;
  }
}

float Engine::evaluate(const std::function<Tensor()>& loss) {
  const TapeScope none(nullptr);
  return loss().item();
}

}  // namespace zeepo
