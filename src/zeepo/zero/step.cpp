// The engine's step: one norm over all ranks, then what the device can step at once; the rest is stepped later
// (step_later.cpp).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/device/copy.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {

// The ranks' partial sums are there: each was taken when its gradients were complete.
void Engine::compute_norm() {
  const std::int64_t blocks = norm_partials_.elements() / collectives_.size();
  const Tensor own = norm_partials_.part(collectives_.rank() * blocks, {blocks});
  Collecting gathered = collectives_.all_gather(own.view(), norm_partials_.view(), {"gradient norms", 0});
  collectives_.wait(gathered);
  launch([&](auto& s) { finish_norm(s, norm_partials_.view(), loss_scale_.value(), options_.clip, control_.view()); });
}

StepResult Engine::step(double lr) {
  if (micro_steps_ != options_.accumulation)
    throw Error("engine: step() after {} of {} micro-steps", micro_steps_, options_.accumulation);
  const Span span(timeline_, TimelineRow::compute, "step");
  micro_steps_ = 0;
  expected_rate_.reset();
  if (steps_in_backward() && lr != lr_) {
    ++steps_;  // it has been taken
    throw Error("engine: step() with the rate {}, but expect_rate() with {}", lr, lr_);
  }
  drop_cache();
  turn_to_next_depths();
  collectives_.all_reduce(loss_.view(), {"loss", 0});
  compute_norm();
  send_control();
  gather_rest();
  ++steps_;
  lr_ = lr;
  const bool any_later = !later_.empty();
  if (!steps_in_backward())
    for (auto& state : states_)
      for (auto& written : std::exchange(state.parameters_written, {})) lower_->wait(written, Place::host);
  const bool delayed = delays() && steps_ > *options_.delay_after;
  std::vector<bool> wanted_next(states_.size());
  for (const std::size_t u : planner_->begin(kTraining).ahead) wanted_next[u] = true;
  const auto fetch_early = [&](std::size_t u) {  // the next pass starts with it
    const std::int64_t sent = collectives_.sent().all_gather;
    if (wanted_next[u]) fetch(u);
    sent_early_bytes_ += collectives_.sent().all_gather - sent;
  };
  for (std::size_t u = 0; u < states_.size(); ++u) {
    if (!steps_in_backward() && !delayed) {
      step_at_once(u);
      if (!steps_later(u)) regather(u);
    }
    if (!any_later) fetch_early(u);  // on its way while the next units are stepped
  }
  take_control();
  if (host_control_[2] != 0)  // skipped: no step waits for sums that the next gradients are written over
    for (auto& state : states_) collectives_.wait(state.grads_gathering);
  if (delayed) delay_update();
  if (any_later) {
    if (!steps_in_backward()) begin_later_steps();
    for (const std::size_t u : always_there_) step_later_pieces(later_end_[u]);
    for (std::size_t u = 0; u < states_.size(); ++u) fetch_early(u);
  }
  for (const std::size_t u : always_there_) await(u);

  collectives_.check();  // the control has come: so has all that it was computed from; the rest the next step checks
  const StepResult result{host_loss_, host_control_[0], host_control_[2] != 0, loss_scale_.value()};
  if (result.skipped) {
    if (steps_in_backward())
      throw Error(
          "step: a gradient is infinite or not a number (loss {}); weights with finite gradients have been stepped in "
          "the backward pass. Lower --lr, or look for broken weights or data",
          result.loss);
    --steps_;
    if (!loss_scale_.in_use())
      throw Error(
          "step: a gradient is infinite or not a number (loss {}); the weights are as before this step. Lower "
          "--lr, or look for broken weights or data",
          result.loss);
  } else if (!std::isfinite(result.loss)) {
    throw Error(
        "step: the loss is {}, with finite gradients; the step has been taken. Lower --lr, or look for broken weights "
        "or data",
        result.loss);
  }
  loss_scale_.update(result.skipped);
  return result;
}

// Ahead of the step's own work, which the host does not wait for.
void Engine::send_control() {
  launch([&](auto& s) {
    std::byte* const to = control_memory_.data();
    copy_to_host(s, control_.view().data, to, sizeof(StepControl));
    copy_to_host(s, loss_.view().data, to + sizeof(StepControl), sizeof(float));
    control_sent_ = point_of(s);
  });
}

void Engine::take_control() {
  launch([&](auto& s) {
    wait_for(s, control_sent_);
    const std::byte* const from = control_memory_.data();
    std::memcpy(host_control_.data(), from, sizeof(StepControl));
    std::memcpy(&host_loss_, from + sizeof(StepControl), sizeof(float));
  });
}

// On the rank's own thread, ahead of every piece's step.
void Engine::before_step(std::size_t u) {
  collectives_.wait(states_[u].grads_gathering);
  buffered_ = {};  // those are of the weights before
}

// Neighbours that decay alike are stepped together, the padding between them too: it is zero and stays so. The thread
// of the HostStepper calls it too: it changes nothing of the engine.
void Engine::step_piece(Stream& stream, std::size_t u, const Extent& extent, const PieceMemory& memory,
                        ConstView control) const {
  const std::int64_t number = steps_in_backward() ? steps_ + 1 : steps_;  // step() counts it after the pass
  const auto& parameters = plan_.units[u].parameters;
  const auto decays = [&](const Parameter& p) { return options_.decay == Decay::all || p.shape().rank() >= 2; };
  std::size_t first = 0;
  while (first < parameters.size()) {
    const Parameter& parameter = *parameters[first].parameter;
    std::size_t next = first + 1;
    const auto alike = [&](const Parameter& other) {
      return decays(parameter) == decays(other) && parameter.leaf().trainable() == other.leaf().trainable();
    };
    while (next < parameters.size() && alike(*parameters[next].parameter)) ++next;
    const std::int64_t end = next < parameters.size() ? parameters[next].offset : states_[u].whole.end;
    const Extent range = common({parameters[first].offset, end}, extent);
    first = next;
    if (!parameter.leaf().trainable() || range.empty()) continue;
    const std::int64_t begin = range.begin - extent.begin, count = range.elements();
    const StateViews states = memory.states.part(begin, count);
    zeepo::step(stream, options_.optimizer,
                {.weights = {part_of(memory.param, begin, count), states.low},
                 .grad = part_of(memory.grads, begin, count),
                 .states = states.moments,
                 .weight_decay = decays(parameter) ? options_.optimizer.weight_decay : 0,
                 .first = states_[u].first_weight + range.begin},
                control, number, lr_);
  }
}

void Engine::step_at_once(std::size_t u) {
  UnitState& state = states_[u];
  for (auto& piece : state.pieces) {
    if (piece.stepped_later()) continue;
    before_step(u);
    const Span span(timeline_, TimelineRow::compute, "step", about({}, u));
    PieceMemory memory = on_device(state, piece);
    memory.grads = piece.device_grads.defined() ? piece.device_grads.view() : gradients_of(state, piece.extent);
    step_piece(Device::current().compute, u, piece.extent, memory, control_on_device(u));
    if (!state.params_block.defined()) continue;
    const std::size_t offset = static_cast<std::size_t>(piece.extent.begin - state.own.begin) * size_of(options_.dtype);
    state.parameters_written.push_back(lower_->from_device(memory.param.data, state.params_block, offset,
                                                           memory.param.bytes(), about("parameters", u)));
  }
}

// On the device: kept, or fresh from their reduction.
View Engine::gradients_of(const UnitState& state, const Extent& extent) const {
  if (state.grads.defined()) return state.grads.of(extent).view();
  return state.fresh.part(extent.begin - state.own.begin, {extent.elements()}).view();
}

Engine::PieceMemory Engine::on_device(const UnitState& state, const StatePiece& piece) const {
  auto* memory = static_cast<std::byte*>(piece.device.view().data);
  PieceMemory result{.states = piece.layout.views(memory, piece.extent.elements()), .param = {}, .grads = {}};
  result.param = piece.layout.holds_param ? result.states.param : state.params.of(piece.extent).view();
  return result;
}

// Stages 0 to 2 keep parameters whole: what other ranks have stepped comes from them.
void Engine::regather(std::size_t u) {
  UnitState& state = states_[u];
  if (!state.params_whole || state.stepped == state.whole || !state.trained) return;
  show(u, false);  // until they are awaited
  state.gathering = collectives_.all_gather(state.params.of(state.own).view(), state.params.tensor.view(),
                                            label("stepped parameters", u), state.parameters_written);
}

}  // namespace zeepo
