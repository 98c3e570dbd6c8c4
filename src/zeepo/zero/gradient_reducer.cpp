#include "zeepo/zero/gradient_reducer.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/first_failure.h"
#include "zeepo/base/work_count.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// At stage 0 the sums of every third unit are gathered under the backward pass, the others' under the next forward
// pass. The backward pass takes twice as long and then has twice as much to hide, reductions and a third of the gathers
// against two thirds: in balance whatever the link. Evenly spread, for what is reduced first is used last.
constexpr std::size_t kGatheredInBackward = 3;

}  // namespace

GradientReducer::GradientReducer(const UnitPlan& units, const StatePlan& plan, StateStore& store, GradientNorm& norm,
                                 Collectives& collectives)
    : names_(units), plan_(plan), store_(store), norm_(norm), collectives_(collectives), units_(plan.units.size()) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (!plan.options.wire.feedback || !plan.units[u].trained || plan.units[u].reduced_as == WireType::same) continue;
    units_[u].lost = zeros(plan.units[u].whole, plan.options.dtype, Kind::grads).tensor;
  }
}

void GradientReducer::forget_lost() {
  for (const auto& unit : units_)
    if (unit.lost.defined()) launch([&](auto& s) { fill(s, unit.lost.view(), 0); });
}

void GradientReducer::begin(const MicroStep& micro_step) { micro_step_ = micro_step; }

void GradientReducer::clear_padding(std::size_t u, const Tensor& flat) const {
  const auto& parameters = names_.units[u].parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::int64_t begin = parameters[i].extent().end;
    const std::int64_t end = i + 1 < parameters.size() ? parameters[i + 1].offset : flat.elements();
    if (begin < end) launch([&](auto& s) { fill(s, flat.part(begin, {end - begin}).view(), 0); });
  }
}

GradientTarget GradientReducer::target(const ParameterId& id) {
  UnitGradients& unit = units_[id.unit];
  if (unit.closed)
    throw Error(
        "engine: a parameter of {} has a gradient after the last visit that names it; the module that uses it must "
        "own or borrow() it",
        names_.units[id.unit].name);
  const bool onto_sum = plan_.ops_add_to_sums() && !micro_step_.first();
  if (!unit.pending.defined()) {
    unit.pending = plan_.reduces_in_place() && store_.keeps_on_device(id.unit)
                       ? store_.all_gradients(id.unit)
                       : Tensor({plan_.units[id.unit].whole.elements()}, plan_.options.dtype, Kind::working);
    unit.written.assign(names_.units[id.unit].parameters.size(), false);
    if (!onto_sum) clear_padding(id.unit, unit.pending);
  }
  const bool adds = onto_sum || unit.written[id.index];
  unit.written[id.index] = true;
  const UnitParameter& parameter = names_.units[id.unit].parameters[id.index];
  return {unit.pending.part(parameter.offset, parameter.shape), adds ? Write::add : Write::overwrite};
}

bool GradientReducer::close(std::size_t u) {
  UnitGradients& unit = units_[u];
  if (unit.closed) return false;
  if (!plan_.units[u].trained) {
    unit.closed = true;
    return false;
  }
  for (std::size_t i = 0; i < names_.units[u].parameters.size(); ++i) {
    if (unit.pending.defined() && unit.written[i]) continue;
    const GradientTarget unused = target({u, i});  // not used in this pass, or frozen
    if (unused.write == Write::overwrite) launch([&](auto& s) { fill(s, unused.tensor.view(), 0); });
  }
  unit.closed = true;
  return !plan_.sums_locally() || add_to_local_sum(u);
}

// Adds this micro-step's gradients to the rank's own sum; true at the last one, when `pending` holds that sum.
bool GradientReducer::add_to_local_sum(std::size_t u) {
  const Tensor &sum = store_.local_sum(u), &pending = units_[u].pending;
  launch([&](auto& s) {
    if (micro_step_.first())
      copy(s, pending.view(), sum.view());
    else
      add(s, sum.view(), pending.view(), sum.view());
    if (micro_step_.last()) copy(s, sum.view(), pending.view());
  });
  if (!micro_step_.last()) units_[u].pending = {};
  return micro_step_.last();
}

// Scratch that a reduction on its way can share with the next: they follow one another. None where gradients are not
// reduced in place: one at a time is then on its way, for each would hold a unit's. Nor where the scratch is much
// larger than the unit: it would stay for as long as such units come.
Tensor GradientReducer::scratch_to_share(std::size_t u) const {
  if (!plan_.reduces_in_place() || !store_.keeps_on_device(u) || reductions_.empty()) return {};
  const Tensor& scratch = reductions_.back().scratch;
  const std::int64_t needed = plan_.units[u].whole.elements();
  const bool fits = scratch.defined() && scratch.elements() >= needed && scratch.elements() / 2 <= needed;
  return fits ? scratch : Tensor();
}

bool GradientReducer::has_room_for(std::size_t u) const {
  const bool needs_no_more =
      is_coded(u) ? plan_.reduces_in_place() && store_.keeps_on_device(u) : scratch_to_share(u).defined();
  return reductions_.size() <= (needs_no_more ? 1 : 0);
}

// Where the sum over ranks and micro-steps is made.
Tensor GradientReducer::sum_of(std::size_t u, const Tensor& pending) const {
  const Extent& own = plan_.units[u].own;
  if (store_.keeps_on_device(u)) return store_.gradients(u, own);
  if (plan_.ranks.alone && plan_.options.accumulation == 1) return pending;
  return Tensor({own.elements()}, plan_.gradient_dtype(), Kind::working);
}

void GradientReducer::start(std::size_t u) {
  const Tensor shared = scratch_to_share(u);
  Reduction reduction;
  reduction.unit = u;
  reduction.pending = std::exchange(units_[u].pending, {});
  reduction.sum = sum_of(u, reduction.pending);
  const bool onto = adds_to_sum();
  if (onto && !store_.keeps_on_device(u)) reduction.sum_arriving = store_.bring_sum(u, reduction.sum);
  const SumInto how{.onto = onto, .rounded_to = rounds_sum() ? plan_.options.dtype : DType::f32};
  const Label label = names_.label("gradients", u);
  if (is_coded(u)) {
    const View lost = units_[u].lost.defined() ? units_[u].lost.view() : View{};
    reduction.done = collectives_.reduce_coded(plan_.units[u].reduced_as, reduction.pending.view(), lost,
                                               reduction.sum.view(), label, how, reduction.sum_arriving);
  } else if (!plan_.ranks.alone) {
    const std::int64_t whole = plan_.units[u].whole.elements();
    reduction.scratch = shared.defined() ? shared : Tensor({whole}, plan_.options.dtype, Kind::working);
    reduction.done = collectives_.reduce_scatter(reduction.pending.view(), reduction.scratch.part(0, {whole}).view(),
                                                 reduction.sum.view(), label, how, reduction.sum_arriving);
  }
  reductions_.push_back(std::move(reduction));
  // Behind this unit's reduction, which the compute waits for.
  for (const std::size_t unit : std::exchange(to_gather_next_, {})) gather(unit);
}

void GradientReducer::wait_for_oldest() { collectives_.wait(reductions_.front().done); }

// A rank alone has sent nothing: its gradients are added to the sum here, unless ops wrote them there.
void GradientReducer::add_own(Reduction& reduction) {
  if (!plan_.ranks.alone || plan_.options.accumulation == 1 || plan_.ops_add_to_sums()) return;
  for (auto& arriving : reduction.sum_arriving) Device::current().lower->wait(arriving, Place::host);
  const View pending = reduction.pending.view(), sum = reduction.sum.view();
  launch([&](auto& s) {
    if (!adds_to_sum())
      copy(s, pending, sum);
    else if (rounds_sum())
      add_rounded(s, sum, pending, sum);
    else
      add(s, sum, pending, sum);
  });
}

void GradientReducer::keep_oldest() {
  Reduction reduction = std::move(reductions_.front());
  reductions_.pop_front();
  const std::size_t u = reduction.unit;
  const bool on_device = store_.keeps_on_device(u);
  if (!on_device) finish_leaving();
  add_own(reduction);
  if (micro_step_.last()) norm_.measure(u, reduction.sum);
  if (!on_device)
    for (auto& leaving : store_.keep_sum(u, reduction.sum)) leaving_.push_back(std::move(leaving));
  if (!micro_step_.last()) return;
  if (plan_.gathers_gradients()) (u % kGatheredInBackward == 0 ? to_gather_next_ : to_gather_).push_back(u);
  if (!plan_.steps_in_backward()) return;
  norm_.finish_unit(u);
  complete_.push_back(u);
}

void GradientReducer::finish_leaving() {
  for (auto& leaving : leaving_) Device::current().lower->wait(leaving.done, leaving.place);
  leaving_.clear();
}

std::vector<std::size_t> GradientReducer::take_complete() {
  if (!complete_.empty()) finish_leaving();
  return std::exchange(complete_, {});
}

void GradientReducer::end() {
  finish_leaving();
  for (auto& unit : units_) unit.closed = false;
}

void GradientReducer::gather(std::size_t u) {
  count_work();
  units_[u].gathering = collectives_.all_gather(store_.gradients(u, plan_.units[u].own).view(),
                                                store_.all_gradients(u).view(), names_.label("gradients", u));
}

void GradientReducer::gather_rest() {
  to_gather_.insert(to_gather_.end(), to_gather_next_.begin(), to_gather_next_.end());
  to_gather_next_.clear();
  std::ranges::stable_sort(to_gather_, {}, [this](std::size_t u) { return plan_.deferred_end[u]; });
  for (const std::size_t u : std::exchange(to_gather_, {})) gather(u);
}

void GradientReducer::settle() {
  for (auto& unit : units_) collectives_.wait(unit.gathering);
}

void GradientReducer::abandon() {
  reductions_.clear();
  leaving_.clear();
  to_gather_next_.clear();
  to_gather_.clear();
  complete_.clear();
  for (auto& unit : units_) {
    unit.pending = {};
    unit.closed = false;
  }
}

void GradientReducer::outlast() noexcept {
  FirstFailure told;  // who needed the gradients has been told, or is told by every later transfer
  for (auto& unit : units_) told.outlast([&] { collectives_.wait(unit.gathering); });
  for (auto& reduction : reductions_) {
    told.outlast([&] { collectives_.wait(reduction.done); });
    for (auto& arriving : reduction.sum_arriving) told.outlast([&] { arriving.wait(); });
  }
  for (auto& leaving : leaving_) told.outlast([&] { leaving.done.wait(); });
}

}  // namespace zeepo
