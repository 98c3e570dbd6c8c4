// The engine's gradients: from the ops into a unit's buffer, reduced over the ranks into this rank's shard.
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {

// Stages 0 and 1 keep a unit's gradients whole, and a rank alone has nothing to cut: the ops then write where the sum
// will be. With accumulation the sum is fp32 and stands apart.
bool Engine::reduces_in_place() const {
  return options_.accumulation == 1 && (options_.stage < 2 || collectives_.alone());
}

void Engine::clear_padding(std::size_t u, const Tensor& flat) {
  const auto& parameters = plan_.units[u].parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t begin = parameters[i].offset + parameters[i].parameter->elements();
    const std::int64_t end = i + 1 < parameters.size() ? parameters[i + 1].offset : flat.elements();
    if (begin < end) launch([&](auto& s) { fill(s, flat.part(begin, {end - begin}).view(), 0); });
  }
}

Gradient::Target Engine::gradient_of(const Leaf& leaf) {
  const Place& place = places_.at(&leaf);
  UnitState& state = states_[place.unit];
  if (state.reduced)
    throw Error(
        "engine: a parameter of {} has a gradient after the last visit that names it; the module that uses it must "
        "own or borrow() it",
        plan_.units[place.unit].name);
  if (!state.pending.defined()) {
    state.pending =
        reduces_in_place() ? state.grads.tensor : Tensor({state.whole.elements()}, options_.dtype, Kind::working);
    clear_padding(place.unit, state.pending);
  }
  return {state.pending.part(place.offset, leaf.shape()), Write::overwrite};
}

// Adds this micro-step's gradients to the rank's own sum; true at the last one, when `pending` holds that sum.
bool Engine::sum_locally(UnitState& state) {
  const Tensor &sum = state.local_sum.tensor, &pending = state.pending;
  const bool last = micro_steps_ + 1 == options_.accumulation;
  launch([&](auto& s) {
    if (micro_steps_ == 0)
      copy(s, pending.view(), sum.view());
    else
      add(s, sum.view(), pending.view(), sum.view());
    if (last) copy(s, sum.view(), pending.view());
  });
  if (!last) state.pending = {};
  return last;
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
  if (sums_locally() && !sum_locally(state)) return;
  finish_reduction();  // one at a time on its way: the memory it holds is bounded

  Reduction reduction{.unit = u, .done = {}, .pending = std::exchange(state.pending, {}), .scratch = {}, .reduced = {}};
  if (collectives_.alone()) {
    reduction.reduced = reduction.pending;
  } else {
    const bool adds = options_.accumulation > 1 && micro_steps_ > 0 && !sums_locally();
    reduction.scratch = Tensor({state.whole.elements()}, options_.dtype, Kind::working);
    reduction.reduced = adds ? Tensor({state.own.elements()}, DType::f32, Kind::working) : state.grads.of(state.own);
    reduction.done = collectives_.reduce_scatter(reduction.pending.view(), reduction.scratch.view(),
                                                 reduction.reduced.view(), label("gradients", u));
  }
  reductions_.push_back(std::move(reduction));
  if (options_.prefetch_bytes == 0) finish_reduction();
}

void Engine::finish_reduction() {
  if (reductions_.empty()) return;
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  collectives_.wait(reduction.done);
  UnitState& state = states_[reduction.unit];
  const Tensor sum = state.grads.of(state.own);
  if (options_.accumulation > 1)
    launch([&](auto& s) {
      if (micro_steps_ > 0 && !sums_locally())
        add(s, sum.view(), reduction.reduced.view(), sum.view());
      else if (collectives_.alone())
        copy(s, reduction.reduced.view(), sum.view());
    });
  // Stage 0 steps every weight on every rank: the other ranks' sums come under the backward pass too.
  if (options_.stage == 0 && !collectives_.alone() && micro_steps_ + 1 == options_.accumulation)
    state.grads_gathering =
        collectives_.all_gather(sum.view(), state.grads.tensor.view(), label("gradients", reduction.unit));
}

}  // namespace zeepo
