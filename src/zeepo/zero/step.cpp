// The engine's step: one norm over all ranks, then each unit stepped where its optimizer state is.
#include <algorithm>
#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {

void Engine::compute_norm() {
  const std::int64_t blocks = norm_partials_.elements() / collectives_.size();
  const Tensor own = norm_partials_.part(collectives_.rank() * blocks, {blocks});
  std::int64_t first = 0;
  for (const auto& state : states_) {
    const std::int64_t count = norm_blocks(state.own.elements());
    launch([&](auto& s) { sum_squares(s, state.grads.of(state.own).view(), own.part(first, {count}).view()); });
    first += count;
  }
  Completion gathered = collectives_.all_gather(own.view(), norm_partials_.view(), {"gradient norms", 0});
  collectives_.wait(gathered);
  launch([&](auto& s) { finish_norm(s, norm_partials_.view(), loss_scale_.value(), options_.clip, control_.view()); });
}

StepResult Engine::step(double lr) {
  if (micro_steps_ != options_.accumulation)
    throw Error("engine: step() after {} of {} micro-steps", micro_steps_, options_.accumulation);
  micro_steps_ = 0;
  collectives_.all_reduce(loss_.view(), {"loss", 0});
  compute_norm();
  ++steps_;
  std::vector<bool> wanted_next(states_.size());
  for (const std::size_t u : planner_->begin(kTraining).ahead) wanted_next[u] = true;
  for (std::size_t u = 0; u < states_.size(); ++u) {
    UnitState& state = states_[u];
    collectives_.wait(state.grads_gathering);
    step_unit(u, lr);
    const std::int64_t sent = collectives_.sent().all_gather;
    if (wanted_next[u]) fetch(u);  // the next pass starts with it: on its way while later units are stepped
    sent_early_bytes_ += collectives_.sent().all_gather - sent;
    if (!state.params_whole() || state.stepped == state.whole) continue;
    show(u, false);  // until they are awaited
    state.gathering = collectives_.all_gather(state.params.of(state.own).view(), state.params.tensor.view(),
                                              label("stepped parameters", u));
  }
  for (const std::size_t u : always_there_) await(u);

  const auto control = control_.to_floats();
  const StepResult result{loss_.item(), control[0], control[2] != 0, loss_scale_.value()};
  if (result.skipped) {
    --steps_;
    if (!loss_scale_.dynamic())
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

void Engine::step_unit(std::size_t u, double lr) {
  const UnitState& state = states_[u];
  const auto& parameters = plan_.units[u].parameters;
  const auto decays = [&](const Parameter& p) { return options_.decay == Decay::all || p.shape().rank() >= 2; };
  const auto step_range = [&](const Extent& range, bool decay) {
    if (range.empty()) return;
    std::vector<View> moments;
    for (const auto& moment : state.moments) moments.push_back(moment.of(range).view());
    zeepo::step(options_.optimizer,
                {.weights = state.weights(range),
                 .grad = state.grads.of(range).view(),
                 .states = moments,
                 .weight_decay = decay ? options_.optimizer.weight_decay : 0},
                control_.view(), steps_, lr);
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
    const std::int64_t end = next < parameters.size() ? parameters[next].offset : state.whole.end;
    if (parameters[first].parameter->leaf().trainable())
      step_range(common({parameters[first].offset, end}, state.stepped), decays(*parameters[first].parameter));
    first = next;
  }
}

}  // namespace zeepo
