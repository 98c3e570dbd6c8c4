#include "zeepo/zero/state_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "zeepo/base/error.h"
#include "zeepo/base/work_count.h"
#include "zeepo/memory/swap_tier.h"
#include "zeepo/zero/weights_in_files.h"

namespace zeepo {
namespace {

// Units whose gathering is not worth it stay whole, as long as they are this small a part of the model together.
constexpr double kPersistentShare = 0.001;

std::vector<StepRange> step_ranges(const Unit& unit, const Extent& whole, Decay decay) {
  std::vector<StepRange> ranges;
  const auto& parameters = unit.parameters;
  const auto decays = [&](const UnitParameter& p) { return decay == Decay::all || p.shape.rank() >= 2; };
  for (std::size_t first = 0; first < parameters.size();) {
    std::size_t next = first + 1;
    const auto alike = [&](const UnitParameter& other) {
      return decays(parameters[first]) == decays(other) && parameters[first].trainable == other.trainable &&
             parameters[first].group == other.group;
    };
    while (next < parameters.size() && alike(parameters[next])) ++next;
    const std::int64_t end = next < parameters.size() ? parameters[next].offset : whole.end;
    if (parameters[first].trainable)
      ranges.push_back({{parameters[first].offset, end}, decays(parameters[first]), parameters[first].group});
    first = next;
  }
  return ranges;
}

// Makes the plan unit by unit, dealing the shares out as it goes.
class Planning {
 public:
  Planning(const UnitPlan& units, StatePlan& plan)
      : units_(units),
        plan_(plan),
        params_(params_shares(plan.options.placement)),
        optimizer_(plan.options.placement.optimizer) {}

  void run() {
    std::int64_t weights = 0;
    plan_.units.resize(units_.units.size());
    for (const auto& visit : units_.visits)
      for (const std::size_t u : visit.units) plan_.units[u].visited = true;
    const auto count = static_cast<double>(parameter_count(units_));
    const std::vector<bool> resident = keep_largest();
    for (std::size_t u = 0; u < units_.units.size(); ++u) {
      const Unit& unit = units_.units[u];
      UnitStates& states = plan_.units[u];
      states.first_weight = weights;
      weights += unit.elements;
      const double share = static_cast<double>(unit.elements) / count;
      const bool persistent = share * static_cast<double>(units_.units.size()) <= kPersistentShare;
      keep(states, unit, !states.visited || persistent, resident[u]);
    }
    order_deferred();
    plan_cache();
  }

 private:
  // With a cache all visited units are offloaded: the cache has the memory that the others would have.
  static Shares params_shares(const Placement& placement) {
    const Shares& shares = placement.params;
    const double offloaded = shares.host + shares.nvme;
    if (placement.cache == CachePolicy::fixed || offloaded <= 0) return shares;
    return {shares.host / offloaded, shares.nvme / offloaded};
  }

  // A pass has room for the largest unit that it fetches, so that units far larger than most, embedding and head, cost
  // more room than they save: in inference they are the first to stay on the device, as far as its share goes.
  std::vector<bool> keep_largest() {
    std::vector<bool> resident(units_.units.size());
    if (plan_.options.use != Use::infer || resident.empty()) return resident;
    std::vector<std::int64_t> sizes;
    std::int64_t all = 0;
    for (const Unit& unit : units_.units) {
      sizes.push_back(unit.elements);
      all += unit.elements;
    }
    std::ranges::nth_element(sizes, sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2));
    const std::int64_t large = sizes[sizes.size() / 2] * 3 / 2;
    double room = params_shares(plan_.options.placement).of(Place::device) * static_cast<double>(all);
    for (std::size_t u = 0; u < resident.size(); ++u) {
      const std::int64_t elements = units_.units[u].elements;
      if (!plan_.units[u].visited || elements <= large || static_cast<double>(elements) > room) continue;
      room -= static_cast<double>(elements);
      resident[u] = true;
      params_.deal(Place::device, elements);
    }
    return resident;
  }

  void keep(UnitStates& states, const Unit& unit, bool stays, bool resident) {
    const EngineOptions& options = plan_.options;
    states.own = shard_of(unit.elements, plan_.ranks.rank, plan_.ranks.size, Unit::kAlignment);
    states.whole = {0, states.own.elements() * plan_.ranks.size};
    if (!stays && !resident) states.params_place = params_.next(unit.elements);
    if (!stays && options.stored_as != CodedType::same && StoredForm::worth_it(unit))
      states.form = StoredForm(options.stored_as, options.dtype, unit, states.own.elements(), plan_.ranks.size);
    states.in_others_files = states.params_place == Place::nvme && !states.form.coded() && options.in_files &&
                             options.in_files->dtype == options.dtype && options.in_files->contain(unit);
    states.params_whole =
        !states.params_offloaded() && !states.form.coded() && (stays || plan_.ranks.alone || !plan_.shards_params());
    if (!stays && !plan_.ranks.alone) {
      states.gathered_as = options.wire.gather;
      states.reduced_as = options.wire.reduce;
    }
    states.trained = options.use == Use::train && std::ranges::any_of(unit.parameters, &UnitParameter::trainable);
    if (!states.trained) return;
    states.ranges = step_ranges(unit, states.whole, options.decay);
    const bool in_pieces =
        !options.placement.optimizer.on_device() || (plan_.steps_on_device() && states.params_offloaded());
    states.stepped = plan_.steps_whole() ? states.whole : states.own;
    states.sums_locally = plan_.sums_locally();
    // In pieces the state is cut where files allow it.
    const std::int64_t step = in_pieces ? options.piece_elements : states.stepped.elements();
    for (std::int64_t begin = states.stepped.begin; begin < states.stepped.end; begin += step) {
      PiecePlan piece{.extent = {begin, std::min(begin + step, states.stepped.end)}};
      if (in_pieces) piece.place = optimizer_.next(piece.extent.elements());
      piece.layout = layout(states, piece.place);
      piece.stepped_by = stepped_by(states, piece.place);
      piece.keeps_gradients =
          in_pieces && !plan_.steps_on_device() && (piece.place != Place::device || plan_.keeps_gradients());
      states.pieces.push_back(piece);
    }
    states.gradients = gradients_kept(states, in_pieces);
  }

  GradientsKept gradients_kept(const UnitStates& states, bool in_pieces) const {
    if (in_pieces && !plan_.steps_on_device()) return GradientsKept::in_pieces;
    if (!plan_.keeps_gradients()) return GradientsKept::until_stepped;
    return states.stepped == states.whole || plan_.reduces_in_place() ? GradientsKept::whole : GradientsKept::shard;
  }

  StateLayout layout(const UnitStates& states, Place place) const {
    const bool apart = !plan_.steps_on_device() && (place == Place::device) != !states.params_offloaded();
    return {.dtype = plan_.options.dtype,
            .holds_param = apart,
            .moments = state_count(plan_.options.optimizer),
            .moment_type = plan_.options.optimizer.moments};
  }

  // Deferred where state or weights must come to where they are stepped, or gradients come under the next forward pass.
  SteppedBy stepped_by(const UnitStates& states, Place place) const {
    if (place != Place::device) return plan_.steps_on_device() ? SteppedBy::device_deferred : SteppedBy::host_deferred;
    const bool weights_come = plan_.steps_on_device() && states.params_offloaded();
    return weights_come || plan_.gathers_gradients() ? SteppedBy::device_deferred : SteppedBy::device_at_once;
  }

  // Units that are always there are stepped first: no visit asks for them. In the backward pass it is the other way
  // round: their gradients come last.
  void order_deferred() {
    plan_.deferred_end.resize(plan_.units.size());
    for (const bool visited : {false, true})
      for (std::size_t u = 0; u < plan_.units.size(); ++u) {
        if (plan_.units[u].visited != visited) continue;
        const auto& pieces = plan_.units[u].pieces;
        for (std::size_t i = 0; i < pieces.size(); ++i)
          if (is_deferred(pieces[i].stepped_by)) plan_.deferred.push_back({u, i});
        plan_.deferred_end[u] = plan_.deferred.size();
      }
    if (!plan_.steps_in_backward()) return;
    std::ranges::reverse(plan_.deferred);
    for (std::size_t i = 0; i < plan_.deferred.size(); ++i) plan_.deferred_end[plan_.deferred[i].unit] = i + 1;
  }

  void plan_cache() {
    const Placement& placement = plan_.options.placement;
    if (placement.cache == CachePolicy::fixed) return;
    std::int64_t bytes = 0;
    for (const auto& states : plan_.units)
      if (states.params_offloaded())
        bytes += states.form.coded() ? static_cast<std::int64_t>(states.form.bytes())
                                     : states.own.elements() * static_cast<std::int64_t>(size_of(plan_.options.dtype));
    plan_.cache_bytes = std::llround(placement.params.of(Place::device) * static_cast<double>(bytes));
  }

  const UnitPlan& units_;
  StatePlan& plan_;
  Dealer params_, optimizer_;
};

}  // namespace

std::optional<std::size_t> UnitStates::piece_with(const Extent& range) const {
  const auto begin_of = [](const PiecePlan& piece) {
    count_work();
    return piece.extent.begin;
  };
  const auto after = std::ranges::upper_bound(pieces, range.begin, {}, begin_of);
  if (after == pieces.begin() || std::prev(after)->extent.end < range.end) return std::nullopt;
  return static_cast<std::size_t>(std::prev(after) - pieces.begin());
}

bool StatePlan::any_deferred(std::size_t unit) const {
  return std::ranges::any_of(units[unit].pieces, [](const PiecePlan& piece) { return is_deferred(piece.stepped_by); });
}

StatePlan plan_states(const UnitPlan& units, const EngineOptions& options, const RankPlace& ranks) {
  check(options);
  StatePlan plan{.options = options, .ranks = ranks};
  if (options.step_phase == StepPhase::in_backward && !plan.gathers_gradients()) plan.phase = StepPhase::in_backward;
  Planning(units, plan).run();
  return plan;
}

PassPlanner::Options pass_options(const UnitPlan& units, const StatePlan& plan) {
  PassPlanner::Options pass{.units_of_module = {}, .unit_bytes = {}, .prefetch_bytes = plan.options.prefetch_bytes};
  for (const auto& visit : units.visits) pass.units_of_module.push_back(visit.units);
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    pass.unit_bytes.push_back(plan.units[u].params_whole ? 0 : plan.fetched_bytes(u));
  return pass;
}

bool host_may_step(const StatePlan& plan, const PieceId& id) {
  const Shares params = Shares::all_in(plan.units[id.unit].params_place);
  const Shares optimizer = Shares::all_in(plan.piece(id).place);
  return plan.steps_on_device() && host_step_obstacle(plan.phase, params, optimizer) == HostStepObstacle::none;
}

std::vector<SteppedBy> deal_sides(const StatePlan& plan, double host_share) {
  Dealer deal(Shares{.host = host_share});
  std::vector<SteppedBy> sides;
  for (const PieceId& id : plan.deferred) {
    SteppedBy side = plan.piece(id).stepped_by;
    if (plan.options.host_pieces_under_way > 0 && host_may_step(plan, id))
      side = deal.next(plan.piece(id).extent.elements()) == Place::host ? SteppedBy::host_beside
                                                                        : SteppedBy::device_deferred;
    sides.push_back(side);
  }
  return sides;
}

std::size_t largest_slot(const StatePlan& plan) {
  std::size_t largest = 0;
  for (const PieceId& id : plan.deferred)
    largest = std::max(largest, slot_parts(plan, id, plan.piece(id).stepped_by).bytes);
  return largest;
}

std::size_t whole_pages(std::size_t bytes) { return Arena::aligned(bytes, SwapTier::kPageBytes); }

SlotParts slot_parts(const StatePlan& plan, const PieceId& id, SteppedBy by) {
  SlotParts parts;
  if (by == SteppedBy::host_beside || by == SteppedBy::device_at_once) return parts;
  const UnitStates& states = plan.units[id.unit];
  const PiecePlan& piece = plan.piece(id);
  const auto away = [by](Place place) {
    return by == SteppedBy::host_deferred ? place == Place::nvme : place != Place::device;
  };
  const auto part = [&](std::size_t offset, std::size_t bytes) {
    const SlotParts::Part result{offset, bytes, parts.bytes};
    parts.bytes += whole_pages(bytes);
    return result;
  };
  const auto elements = static_cast<std::size_t>(piece.extent.elements());
  // SGD in fp32 without momentum keeps no state.
  if (const std::size_t bytes = piece.layout.bytes(piece.extent.elements()); bytes > 0 && away(piece.place))
    parts.states = part(0, bytes);
  if (!piece.layout.holds_param && away(states.params_place))
    parts.params = part(plan.param_offset(id.unit, piece.extent), elements * size_of(plan.options.dtype));
  if (piece.keeps_gradients && piece.place != Place::device && away(piece.place))
    parts.grads = part(0, elements * size_of(plan.gradient_dtype()));
  return parts;
}

}  // namespace zeepo
