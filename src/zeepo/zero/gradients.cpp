// The engine's gradients: from the ops into a unit's buffer, reduced over the ranks into this rank's shard.
#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {
namespace {

// At stage 0 the sums of every third unit are gathered under the backward pass, the others' under the next forward
// pass. The backward pass takes twice as long and then has twice as much to hide, reductions and a third of the gathers
// against two thirds: in balance whatever the link. Evenly spread, for what is reduced first is used last.
constexpr std::size_t kGatheredInBackward = 3;

}  // namespace

// Stages 0 and 1 keep a unit's gradients whole, and a rank alone has nothing to cut: the ops then write where the sum
// will be. With accumulation the sum is fp32 and stands apart, but for ops that add to it.
bool Engine::reduces_in_place() const {
  if (delays()) return false;  // the last step's are there still
  if (ops_add_to_sums()) return true;
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
  const bool adds = ops_add_to_sums() && micro_steps_ > 0;
  const UnitPlace& place = places_.of(leaf);
  UnitState& state = states_[place.unit];
  if (state.reduced)
    throw Error(
        "engine: a parameter of {} has a gradient after the last visit that names it; the module that uses it must "
        "own or borrow() it",
        plan_.units[place.unit].name);
  if (!state.pending.defined()) {
    state.pending = reduces_in_place() && state.grads.defined()
                        ? state.grads.tensor
                        : Tensor({state.whole.elements()}, options_.dtype, Kind::working);
    if (!adds) clear_padding(place.unit, state.pending);
  }
  return {state.pending.part(place.offset, leaf.shape()), adds ? Write::add : Write::overwrite};
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
  if (!state.trained) {
    state.reduced = true;
    return;
  }
  for (const auto& named : plan_.units[u].parameters) {
    Leaf& leaf = named.parameter->leaf();
    if (leaf.written()) {
      leaf.take();
    } else {  // not used in this pass, or frozen
      const auto unused = gradient_of(leaf);
      if (unused.write == Write::overwrite) launch([&](auto& s) { fill(s, unused.tensor.view(), 0); });
    }
  }
  state.reduced = true;
  if (sums_locally() && !sum_locally(state)) return;
  const Tensor scratch = scratch_on_its_way(state);  // the memory that reductions hold on their way is bounded
  while (reductions_.size() > (scratch.defined() ? 1 : 0)) finish_reduction();

  Reduction reduction{};
  reduction.unit = u;
  reduction.pending = std::exchange(state.pending, {});
  fetch_sum(reduction);
  if (collectives_.alone()) {
    reduction.reduced = reduction.pending;
  } else {
    const bool adds = adds_to_sum();
    reduction.scratch = scratch.defined() ? scratch : Tensor({state.whole.elements()}, options_.dtype, Kind::working);
    if (adds || delays() || !state.grads.defined())
      reduction.reduced = Tensor({state.own.elements()}, adds ? DType::f32 : grads_dtype(), Kind::working);
    else
      reduction.reduced = state.grads.of(state.own);
    const View room = reduction.scratch.part(0, {state.whole.elements()}).view();
    reduction.done =
        collectives_.reduce_scatter(reduction.pending.view(), room, reduction.reduced.view(), label("gradients", u));
  }
  reductions_.push_back(std::move(reduction));
  // Behind this unit's reduction, which the compute waits for. All of them where the step waits for all at once.
  const bool all = delays() && steps_ < *options_.delay_after;
  const auto goes_now = [all](std::size_t unit) { return all || unit % kGatheredInBackward == 0; };
  for (const std::size_t unit : to_gather_)
    if (goes_now(unit)) gather_gradients(unit);
  std::erase_if(to_gather_, goes_now);
  const bool nothing_to_wait_for = steps_in_backward() && collectives_.alone();
  if (options_.prefetch_bytes == 0 || nothing_to_wait_for) finish_reduction();
}

// Memory that a reduction on its way can share with the next: they follow one another. None where gradients are not
// reduced in place: one at a time is then on its way, for each would hold a unit's. Nor where it is much larger than
// the unit: it would stay for as long as such units come.
Tensor Engine::scratch_on_its_way(const UnitState& state) const {
  if (!reduces_in_place() || !state.grads.defined() || reductions_.empty()) return {};
  const Tensor& scratch = reductions_.back().scratch;
  const std::int64_t needed = state.whole.elements();
  const bool fits = scratch.defined() && scratch.elements() >= needed && scratch.elements() / 2 <= needed;
  return fits ? scratch : Tensor();
}

// Sums of earlier micro-steps that live below the device come up to be added to.
void Engine::fetch_sum(Reduction& reduction) {
  const UnitState& state = states_[reduction.unit];
  if (state.grads.defined() || !adds_to_sum()) return;
  reduction.sum = Tensor({state.own.elements()}, DType::f32, Kind::working);
  for (const auto& piece : state.pieces) {
    if (piece.place == Place::device) continue;
    const Tensor part = reduction.sum.part(piece.extent.begin - state.own.begin, {piece.extent.elements()});
    reduction.sum_arriving.push_back(lower_->to_device(piece.grads_block, 0, part.view().data, part.view().bytes(),
                                                       about("gradients", reduction.unit), {piece.grads_written}));
  }
}

void Engine::finish_reduction() {
  if (reductions_.empty()) return;
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  collectives_.wait(reduction.done);
  step_reduced();
  if (update_waits_)
    keep_in_turn(std::move(reduction));
  else
    keep_reduced(reduction);
}

void Engine::keep_reduced(Reduction& reduction) {
  UnitState& state = states_[reduction.unit];
  if (!state.grads.defined()) {
    keep_in_pieces(state, reduction);
    if (last_micro_step()) when_reduced(reduction.unit);
    return;
  }
  const Tensor sum = state.grads.of(state.own);
  if (!reduces_in_place())
    launch([&](auto& s) {
      if (adds_to_sum())
        add(s, sum.view(), reduction.reduced.view(), sum.view());
      else if (collectives_.alone() || delays())
        copy(s, reduction.reduced.view(), sum.view());
    });
  if (!last_micro_step()) return;
  measure(state, sum, state.own.begin);
  if (gathers_gradients()) to_gather_.push_back(reduction.unit);
  when_reduced(reduction.unit);
}

// Stage 0 steps every weight on every rank, and needs the other ranks' sums.
void Engine::gather_gradients(std::size_t u) {
  UnitState& state = states_[u];
  state.grads_gathering =
      collectives_.all_gather(state.grads.of(state.own).view(), state.grads.tensor.view(), label("gradients", u));
}

// Under the next forward pass, in its order.
void Engine::gather_rest() {
  std::ranges::stable_sort(to_gather_, {}, [this](std::size_t u) { return later_end_[u]; });
  for (const std::size_t u : std::exchange(to_gather_, {})) gather_gradients(u);
}

// Each piece's sum goes where the piece lives; or stays for its step, which comes next.
void Engine::keep_in_pieces(UnitState& state, Reduction& reduction) {
  finish_leaving();
  for (auto& arriving : reduction.sum_arriving) lower_->wait(arriving, Place::host);
  const bool kept = keeps_gradients();
  if (!kept) state.fresh = reduction.reduced;
  for (auto& piece : state.pieces) {
    const auto of_piece = [&](const Tensor& own) {
      return own.part(piece.extent.begin - state.own.begin, {piece.extent.elements()});
    };
    Tensor value = of_piece(reduction.reduced);
    if (piece.place == Place::device && kept) {
      const Tensor& sum = piece.device_grads;
      launch([&](auto& s) {
        if (adds_to_sum())
          add(s, sum.view(), value.view(), sum.view());
        else
          copy(s, value.view(), sum.view());
      });
      value = sum;
    } else if (adds_to_sum()) {
      const Tensor sum = of_piece(reduction.sum);
      launch([&](auto& s) { add(s, sum.view(), value.view(), sum.view()); });
      value = sum;
    } else if (value.dtype() != grads_dtype()) {
      const Tensor widened({value.elements()}, grads_dtype(), Kind::working);
      launch([&](auto& s) { copy(s, value.view(), widened.view()); });
      value = widened;
    }
    if (last_micro_step()) measure(state, value, piece.extent.begin);
    if (!piece.grads_block.defined()) continue;
    piece.grads_written = lower_->from_device(value.view().data, piece.grads_block, 0, value.view().bytes(),
                                              about("gradients", reduction.unit));
    leaving_.push_back({value, piece.grads_written, piece.place});
  }
}

// The gradient norm's part of elements [begin, ...) of the unit, whatever becomes of them next.
void Engine::measure(const UnitState& state, const Tensor& sums, std::int64_t begin) {
  const std::int64_t blocks = norm_partials_.elements() / collectives_.size();
  const std::int64_t first = state.first_norm_block + (begin - state.own.begin) / kNormBlock;
  const Tensor own = norm_partials_.part(collectives_.rank() * blocks + first, {norm_blocks(sums.elements())});
  launch([&](auto& s) { sum_squares(s, sums.view(), own.view()); });
}

void Engine::finish_leaving() {
  for (auto& leaving : leaving_) lower_->wait(leaving.done, leaving.place);
  leaving_.clear();
}

}  // namespace zeepo
