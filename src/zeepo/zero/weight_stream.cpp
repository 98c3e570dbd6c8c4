#include "zeepo/zero/weight_stream.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/first_failure.h"
#include "zeepo/base/work_count.h"
#include "zeepo/device/weights_stay.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

WeightStream::WeightStream(const UnitPlan& units, const StatePlan& plan, StateStore& store, Collectives& collectives,
                           GatherMemory* memory)
    : names_(units),
      plan_(plan),
      store_(store),
      collectives_(collectives),
      memory_(memory),
      planner_(pass_options(units, plan)),
      units_(plan.units.size()) {
  for (std::size_t v = 0; v < units.visits.size(); ++v) visits_.emplace(units.visits[v].units, v);
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const UnitStates& states = plan.units[u];
    if (plan.keeps_node_copy(u))
      units_[u].node_copy =
          collectives.messages().node_copy_room(states.gathered_as, plan.options.dtype, states.own.elements());
    if (!states.params_whole) continue;
    units_[u].flat = store.whole_params(u);
    units_[u].here = true;
  }
}

PassPlanner::Wanted WeightStream::begin_pass(PassKind kind) {
  for (const std::size_t u : std::exchange(unpublished_, {})) publish(u);
  moved_early_ = {};
  PassPlanner::Wanted wanted = planner_.begin(static_cast<int>(kind));
  release_all_but(wanted.ahead);
  return wanted;
}

PassPlanner::Wanted WeightStream::visit(const Visit& visit) {
  PassPlanner::Wanted wanted = planner_.visit(visit);
  for (const auto* units : {&wanted.now, &wanted.ahead})
    for (const std::size_t u : *units) uncache(u);
  // What was fetched first is let go of first: a cache keeps what was used last.
  std::ranges::sort(wanted.gone, {}, [this](std::size_t u) { return units_[u].fetched_as; });
  for (const std::size_t u : wanted.gone) release_or_cache(u);
  return wanted;
}

std::size_t WeightStream::visit_of(const std::vector<std::size_t>& units) {
  const auto known = visits_.find(units);
  if (known != visits_.end()) return known->second;
  return visits_.emplace(units, planner_.add_module(units)).first->second;
}

std::vector<bool> WeightStream::wanted_first() {
  std::vector<bool> wanted(units_.size());
  for (const std::size_t u : planner_.begin(static_cast<int>(PassKind::training)).ahead) wanted[u] = true;
  return wanted;
}

void WeightStream::run_ahead(PassKind kind) {
  release_all();  // offloaded parameters are fetched in every pass
  for (const std::size_t u : planner_.begin(static_cast<int>(kind)).ahead) {
    uncache(u);
    fetch_early(u);
  }
}

void WeightStream::release_all_but(const std::vector<std::size_t>& wanted) {
  std::vector<bool> stays(units_.size());
  for (const std::size_t u : wanted) {
    uncache(u);
    stays[u] = true;
  }
  for (const auto& [number, u] : std::map(fetched_))
    if (!stays[u]) release_or_cache(u);
}

void WeightStream::fetch(std::size_t u) {
  Gathered& unit = units_[u];
  if (unit.fetched()) return;
  const UnitStates& states = plan_.units[u];
  unit.fetched_as = ++fetches_;
  fetched_[unit.fetched_as] = u;
  if (states.form.coded()) return fetch_coded(u);
  const std::int64_t elements = states.whole.elements();
  unit.flat = memory_ ? memory_->take(u, elements, plan_.options.dtype)
                      : Tensor({elements}, plan_.options.dtype, Kind::working);
  const View own = unit.flat.part(states.own.begin, {states.own.elements()}).view();
  if (!states.params_offloaded()) {
    gather(u, store_.params(u).tensor.view(), "parameters", store_.unit(u).params_written);
  } else if (unit.copy_fresh) {
    gather(u, own, "parameters", {});  // the shard itself is not needed
  } else {
    unit.arriving = store_.bring_params(u, own);
    gather(u, own, "parameters", {unit.arriving});
  }
}

void WeightStream::fetch_coded(std::size_t u) {
  Gathered& unit = units_[u];
  const UnitStates& states = plan_.units[u];
  const Tensor& kept = store_.unit(u).coded;
  if (kept.defined() && plan_.ranks.alone) {
    unit.coded = kept;
    return;
  }
  const auto bytes = static_cast<std::int64_t>(states.form.bytes());
  unit.coded = Tensor({bytes * plan_.ranks.size}, DType::u8, Kind::working);
  const View own = unit.coded.part(bytes * plan_.ranks.rank, {bytes}).view();
  if (!kept.defined()) unit.arriving = store_.bring_params(u, own);
  unit.gathering = collectives_.all_gather(kept.defined() ? kept.view() : own, unit.coded.view(),
                                           names_.label("parameters", u), {unit.arriving});
}

// Memory for the values is taken when a visit uses them: what is fetched ahead is as small as it is stored. What is
// written here must not be read before the kernels that write it have ended.
void WeightStream::expand(std::size_t u) {
  set_weights_stay(Device::current().compute, false);
  Gathered& unit = units_[u];
  const UnitStates& states = plan_.units[u];
  unit.flat = Tensor({states.whole.elements()}, plan_.options.dtype, Kind::working);
  const auto bytes = static_cast<std::int64_t>(states.form.bytes());
  const std::int64_t shard = states.own.elements();
  for (int rank = 0; rank < plan_.ranks.size; ++rank) {
    const View stored = unit.coded.part(bytes * rank, {bytes}).view();
    const View values = unit.flat.part(shard * rank, {shard}).view();
    const auto* rows = stored.as<const std::byte>();
    launch([&](auto& s) { expand_weights(s, states.form.type(), rows, values); });
    for (const auto& [extent, offset] : states.form.exact_parts(rank)) {
      const auto begin = bytes * rank + static_cast<std::int64_t>(offset);
      const auto count = extent.elements() * static_cast<std::int64_t>(size_of(plan_.options.dtype));
      const ConstView exact{unit.coded.part(begin, {count}).view().data, plan_.options.dtype, {extent.elements()}};
      const View to = unit.flat.part(extent.begin, {extent.elements()}).view();
      launch([&](auto& s) { copy(s, exact, to); });
    }
  }
  if (plan_.cache_bytes == 0) unit.coded = {};
}

// Undefined where it is not stored exactly, or in parts.
Tensor WeightStream::exact_parameter(const ParameterId& id) const {
  const Tensor& coded = units_[id.unit].coded;
  const UnitParameter& parameter = names_.units[id.unit].parameters[id.index];
  if (!coded.defined() || plan_.ranks.size > 1 || !stays_exact(parameter)) return {};
  for (const auto& [extent, offset] : plan_.units[id.unit].form.exact_parts(0))
    if (extent == parameter.extent()) return coded.bytes_as(offset, parameter.shape, plan_.options.dtype);
  return {};
}

WeightStream::Stored WeightStream::stored(const ParameterId& id) const {
  const Gathered& unit = units_[id.unit];
  const UnitParameter& parameter = names_.units[id.unit].parameters[id.index];
  if (!unit.here || !unit.coded.defined() || plan_.ranks.size > 1 || stays_exact(parameter)) return {};
  const StoredForm& form = plan_.units[id.unit].form;
  const auto begin = static_cast<std::int64_t>(form.code_bytes(parameter.offset));
  const auto bytes = static_cast<std::int64_t>(form.code_bytes(parameter.shape.elements()));
  return {unit.coded.part(begin, {bytes}), form.type()};
}

void WeightStream::gather(std::size_t u, const View& own, std::string_view what, std::vector<Completion> after) {
  Gathered& unit = units_[u];
  GatherWire wire{.type = plan_.units[u].gathered_as};
  wire.node_copy = unit.node_copy.bytes();
  if (!wire.node_copy.empty()) {
    wire.from = unit.copy_fresh ? GatherFrom::node_copy : GatherFrom::ranks;
    unit.copy_fresh = true;
  }
  unit.gathering = collectives_.all_gather(own, unit.flat.view(), names_.label(what, u), std::move(after), wire);
}

void WeightStream::fetch_early(std::size_t u) {
  const MovedBytes before = moved_so_far(collectives_);
  fetch(u);
  moved_early_ = moved_early_ + (moved_so_far(collectives_) - before);
}

void WeightStream::await(std::size_t u) {
  Gathered& unit = units_[u];
  store_.wait_params_written(u);
  if (plan_.units[u].params_offloaded()) Device::current().lower->wait(unit.arriving, plan_.units[u].params_place);
  collectives_.wait(unit.gathering);
  unit.here = true;
}

void WeightStream::await_always_there() {
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (!plan_.units[u].visited) await(u);
}

Tensor WeightStream::parameter(const ParameterId& id) {
  const Gathered& unit = units_[id.unit];
  if (!unit.here) return {};
  if (!unit.flat.defined()) {
    if (Tensor exact = exact_parameter(id); exact.defined()) return exact;
    expand(id.unit);
  }
  const UnitParameter& parameter = names_.units[id.unit].parameters[id.index];
  return unit.flat.part(parameter.offset, parameter.shape);
}

void WeightStream::publish(std::size_t u) {
  const UnitStates& states = plan_.units[u];
  if (!states.params_whole || states.stepped == states.whole || !states.trained) return;
  units_[u].here = false;
  gather(u, store_.params(u).of(states.own).view(), "stepped parameters", store_.unit(u).params_written);
}

void WeightStream::release(std::size_t u) {
  Gathered& unit = units_[u];
  if (plan_.units[u].params_whole || !unit.fetched()) return;
  unit.arriving.wait();
  collectives_.wait(unit.gathering);
  unit.here = false;
  unit.flat = {};
  unit.coded = {};
  fetched_.erase(unit.fetched_as);
}

void WeightStream::release_or_cache(std::size_t u) {
  count_work();
  if (plan_.cache_bytes == 0 || !plan_.units[u].params_offloaded()) return release(u);
  if (!units_[u].fetched() || units_[u].cached) return;
  units_[u].cached = cached_.insert(cached_.end(), u);
  cached_bytes_ += plan_.fetched_bytes(u);
  if (units_[u].coded.defined()) {  // as it is stored, more of them fit
    units_[u].flat = {};
    units_[u].here = false;
  }
  while (cached_bytes_ > plan_.cache_bytes) {
    const std::size_t oldest = cached_.front();
    uncache(oldest);
    release(oldest);
  }
}

void WeightStream::uncache(std::size_t u) {
  if (!units_[u].cached) return;
  cached_.erase(*std::exchange(units_[u].cached, std::nullopt));
  cached_bytes_ -= plan_.fetched_bytes(u);
}

void WeightStream::forget_copies() {
  for (Gathered& unit : units_) unit.copy_fresh = false;
}

void WeightStream::drop_cache() {
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (plan_.units[u].trained) units_[u].copy_fresh = false;
  while (!cached_.empty()) {
    const std::size_t oldest = cached_.front();
    uncache(oldest);
    release(oldest);
  }
}

void WeightStream::settle() {
  for (auto& unit : units_) collectives_.wait(unit.gathering);
}

void WeightStream::outlast() noexcept {
  FirstFailure told;  // who needed the parameters has been told, or is told by every later transfer
  for (auto& unit : units_) {
    told.outlast([&] { unit.arriving.wait(); });
    told.outlast([&] { collectives_.wait(unit.gathering); });
  }
}

}  // namespace zeepo
