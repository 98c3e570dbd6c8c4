// The engine's delayed update: a step's gradients wait through the next step's passes and are used there, unit by unit,
// when that unit's new gradients are reduced and would take their place. Its weights have had their last use by then.
#include <algorithm>
#include <utility>

#include "zeepo/zero/engine.h"

namespace zeepo {

// Called with the control of the step; a step that is skipped has no update.
void Engine::delay_update() {
  if (host_control_[2] != 0) return;
  update_waits_ = true;
  updated_.assign(states_.size(), false);
}

// All pieces of a unit, whose turn it is among those that are stepped later.
void Engine::update_unit(std::size_t u) {
  if (updated_[u] || !states_[u].trained) return;
  updated_[u] = true;
  step_at_once(u);
  if (steps_later(u))
    while (later_stepped_ < later_end_[u]) step_later_piece(later_[later_stepped_++]);
  regather(u);
}

// Pieces that are stepped later pass through the slots in one order. New gradients that come out of it wait for their
// turn, which is at the latest when those of all units have come.
void Engine::keep_in_turn(Reduction reduction) {
  in_queue_.push_back(std::move(reduction));
  const auto may_go = [this](const Reduction& queued) {
    const bool next = later_stepped_ < later_.size() && later_[later_stepped_].unit == queued.unit;
    return next || updated_[queued.unit] || !steps_later(queued.unit);
  };
  for (;;) {
    const auto found = std::ranges::find_if(in_queue_, may_go);
    if (found == in_queue_.end()) return;
    Reduction now = std::move(*found);
    in_queue_.erase(found);
    update_unit(now.unit);
    keep_reduced(now);
  }
}

// Without a next step. What was gathered ahead of it is of the weights before.
void Engine::finish_update() {
  if (!update_waits_) return;
  hold({});
  drop_cache();
  for (const auto& [unit, piece] :
       std::vector(later_.begin() + static_cast<std::ptrdiff_t>(later_stepped_), later_.end()))
    update_unit(unit);
  for (std::size_t u = 0; u < states_.size(); ++u) update_unit(u);
  update_waits_ = false;
  for (const std::size_t u : always_there_) await(u);
}

}  // namespace zeepo
