// The engine's step inside the backward pass: each unit as soon as its gradients are reduced, at the latest when the
// next unit's are. The arithmetic is that of a step which clips nothing.
#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {

// The step's rate holds from now on.
void Engine::begin_steps_in_backward() {
  if (!expected_rate_)
    throw Error("engine: steps in the backward pass need the learning rate before it: call expect_rate()");
  lr_ = *expected_rate_;
  for (auto& state : states_)
    for (auto& written : std::exchange(state.parameters_written, {})) lower_->wait(written, Place::host);
  may_step_.assign(states_.size(), false);
  later_stepped_ = 0;
  slots_end_ = used_slots_;
  read_ahead();
}

// A unit whose gradients must travel first waits until the next unit's are reduced. Only what is finite is stepped.
void Engine::when_reduced(std::size_t u) {
  if (!steps_in_backward()) return;
  const UnitState& state = states_[u];
  to_step_.push_back(u);
  const std::int64_t blocks = norm_partials_.elements() / collectives_.size(), size = control_.elements();
  const Tensor partials =
      norm_partials_.part(collectives_.rank() * blocks + state.first_norm_block, {norm_blocks(state.own.elements())});
  const Tensor control = unit_controls_.part(static_cast<std::int64_t>(u) * size, {size});
  launch([&](auto& s) { finish_norm(s, partials.view(), 1, 0, control.view()); });
  if (leaving_.empty()) step_reduced();
}

void Engine::step_reduced() {
  if (to_step_.empty()) return;
  finish_leaving();
  for (const std::size_t u : std::exchange(to_step_, {})) {
    UnitState& state = states_[u];
    step_at_once(u);
    may_step_[u] = true;
    if (steps_later(u)) continue;
    regather(u);
    state.fresh = {};
  }
  step_ready_pieces();
}

// In the one order in which they pass through the slots: a unit that is reduced out of turn waits for those before it.
void Engine::step_ready_pieces() {
  std::size_t ready = later_stepped_;
  slots_end_ = used_slots_;
  for (; ready < later_.size() && may_step_[later_[ready].unit]; ++ready)
    if (parts_in_slot(later_[ready]).bytes > 0) ++slots_end_;
  read_ahead();
  while (later_stepped_ < ready) {
    const std::size_t u = later_[later_stepped_].unit;
    step_later_piece(later_[later_stepped_++]);
    if (later_stepped_ != later_end_[u]) continue;
    regather(u);
    states_[u].fresh = {};
  }
}

// What the pass has not come to is not stepped; the slots start a new round.
void Engine::abandon_steps_in_backward() {
  to_step_.clear();
  for (auto& state : states_) state.fresh = {};
  if (!steps_in_backward() || later_stepped_ == later_.size()) return;
  for (std::size_t u = 0; u < states_.size(); ++u)  // stepped in part, which the other ranks must see
    if (may_step_[u] && later_end_[u] > later_stepped_ && steps_later(u)) regather(u);
  later_stepped_ = later_.size();
  if (!slots_) return;
  const auto cycle = static_cast<std::int64_t>(in_slots_.size());
  used_slots_ = (used_slots_ + cycle - 1) / cycle * cycle;
  try {
    forget_read_ahead();
  } catch (const std::exception&) {  // not to hide what ended the pass: every later transfer throws the same
  }
}

ConstView Engine::control_on_device(std::size_t u) const {
  if (!steps_in_backward()) return control_.view();
  const std::int64_t size = control_.elements();
  return unit_controls_.part(static_cast<std::int64_t>(u) * size, {size}).view();
}

std::array<float, 3> Engine::control_on_host(std::size_t u) const {
  if (!steps_in_backward()) return host_control_;
  const std::int64_t size = control_.elements();
  std::array<float, 3> control{};
  std::ranges::copy(unit_controls_.part(static_cast<std::int64_t>(u) * size, {size}).to_floats(), control.begin());
  return control;
}

}  // namespace zeepo
