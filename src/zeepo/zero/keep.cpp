// What the engine keeps of each unit, and where: from the stage, the placement and the model's units, once.
#include <algorithm>
#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {
namespace {

// Units whose gathering is not worth it stay whole, as long as they are this small a part of the model together.
constexpr double kPersistentShare = 0.001;

}  // namespace

void Engine::check_options() const {
  if (options_.accumulation < 1) throw Error("engine: accumulation {}: must be at least 1", options_.accumulation);
  if (options_.stage < 0 || options_.stage > 3) throw Error("engine: stage {}: must be 0, 1, 2 or 3", options_.stage);
  if (options_.use == Use::train) check(options_.optimizer);
  if (options_.reduce == Reduce::last && options_.stage > 1)
    throw Error("engine: stage {} keeps no whole gradients to sum before reducing; use stage 0 or 1, or reduce each",
                options_.stage);
  if (options_.ops_add_gradients && !steps_on_device() && !options_.placement.optimizer.on_device())
    throw Error("engine: ops cannot add to sums of gradients below the device; let the device step what lives there");
  if (options_.piece_elements < 1 || options_.piece_elements % kPieceAlignment != 0)
    throw Error("engine: pieces of {} elements: must be a multiple of {}", options_.piece_elements, kPieceAlignment);
  if (delays() && options_.accumulation > 1)
    throw Error(
        "engine: a delayed update with {} micro-steps: gradients of one step are kept only; take one micro-step",
        options_.accumulation);
  const bool in_backward = options_.step_phase == StepPhase::in_backward;
  if (delays() && in_backward) throw Error("engine: a delayed update cannot be made in the same backward pass");
  if (in_backward && (options_.clip > 0 || options_.dtype == DType::f16))
    throw Error("engine: clip {} in {}: steps in the backward pass cannot be clipped or scaled; step after it",
                options_.clip, name_of(options_.dtype));
  if (!(options_.host_share >= 0 && options_.host_share <= 1))
    throw Error("engine: a share of {} stepped by the host: must be from 0 to 1", options_.host_share);
  if (options_.host_share > 0 && options_.host_pieces_under_way < 1)
    throw Error("engine: a share of {} stepped by the host, with {} pieces under way: must be at least 1",
                options_.host_share, options_.host_pieces_under_way);
  if (options_.host_share > 0 && steps_with_backward())
    throw Error("engine: a share of {} stepped by the host beside the device: not in or under a backward pass",
                options_.host_share);
  if (options_.pieces_under_way < 1)
    throw Error("engine: {} pieces under way: must be at least 1", options_.pieces_under_way);
  if (!lower_ && !options_.placement.on_device())
    throw Error("engine: nothing lies below the device; make a Session with host memory");
}

bool Engine::persistent(const Unit& unit) const {
  const auto share = static_cast<double>(unit.elements) / static_cast<double>(parameter_count_);
  return share * static_cast<double>(plan_.units.size()) <= kPersistentShare;
}

void Engine::keep(UnitState& state, const Unit& unit, bool stays, Dealers& deal) {
  state.own = shard_of(unit.elements, collectives_.rank(), collectives_.size(), Unit::kAlignment);
  state.whole = {0, state.own.elements() * collectives_.size()};
  if (!stays) state.params_place = deal.params.next(unit.elements);
  if (state.params_place != Place::device) {
    const auto bytes = static_cast<std::size_t>(state.own.elements()) * size_of(options_.dtype);
    state.params_block = lower_->at(state.params_place).allocate(bytes, Kind::params);
  } else {
    state.params_whole = stays || collectives_.alone() || !shards_params();
    state.params = zeros(state.params_whole ? state.whole : state.own, options_.dtype, Kind::params);
    if (state.params_whole) state.gathered = state.params.tensor;
  }
  state.trained = options_.use == Use::train && std::ranges::any_of(unit.parameters, [](const auto& named) {
                    return named.parameter->leaf().trainable();
                  });
  if (!state.trained) return;
  const bool below = !options_.placement.optimizer.on_device() || (steps_on_device() && state.params_block.defined());
  state.stepped = steps_whole() ? state.whole : state.own;
  if (below)
    keep_pieces(state, deal.optimizer);
  else
    keep_on_device(state);
  if ((!below || steps_on_device()) && keeps_gradients()) keep_gradients(state);
  if (sums_locally()) state.local_sum = zeros(state.whole, DType::f32, Kind::grads);
}

StateLayout Engine::layout(const UnitState& state, Place place) const {
  const bool apart = !steps_on_device() && (place == Place::device) != (state.params_place == Place::device);
  return {.dtype = options_.dtype,
          .holds_param = apart,
          .moments = state_count(options_.optimizer),
          .moment_type = options_.optimizer.moments};
}

// Later where its state or its weights must come to where it is stepped, or gradients come under the next forward pass;
// a delayed update has its own time for these. deal_sides() may give the host a part of what is the device's here.
SteppedBy Engine::stepped_by(const UnitState& state, Place place) const {
  if (place != Place::device) return steps_on_device() ? SteppedBy::device_later : SteppedBy::host_later;
  const bool weights_come = steps_on_device() && state.params_block.defined();
  return weights_come || (gathers_gradients() && !delays()) ? SteppedBy::device_later : SteppedBy::device_at_once;
}

void Engine::keep_on_device(UnitState& state) {
  StatePiece piece{
      .extent = state.stepped, .layout = layout(state, Place::device), .stepped_by = stepped_by(state, Place::device)};
  const auto bytes = static_cast<std::int64_t>(piece.layout.bytes(piece.extent.elements()));
  piece.device = zeros({0, bytes / 2}, DType::i16, Kind::optimizer).tensor;
  state.pieces.push_back(std::move(piece));
}

void Engine::keep_gradients(UnitState& state) {
  const bool whole = state.stepped == state.whole || reduces_in_place();
  state.grads = zeros(whole ? state.whole : state.own, grads_dtype(), Kind::grads);
}

// Cut where files allow it; gradients stay with their piece.
void Engine::keep_pieces(UnitState& state, Dealer& deal) {
  for (std::int64_t begin = state.own.begin; begin < state.own.end; begin += options_.piece_elements) {
    const std::int64_t end = std::min(begin + options_.piece_elements, state.own.end);
    StatePiece piece{.extent = {begin, end}, .place = deal.next(end - begin)};
    piece.layout = layout(state, piece.place);
    piece.stepped_by = stepped_by(state, piece.place);
    const std::size_t bytes = piece.layout.bytes(end - begin);
    const std::size_t grads_bytes = static_cast<std::size_t>(end - begin) * size_of(grads_dtype());
    if (piece.place == Place::device) {
      piece.device = zeros({0, static_cast<std::int64_t>(bytes / 2)}, DType::i16, Kind::optimizer).tensor;
      if (!steps_on_device() && keeps_gradients())
        piece.device_grads = zeros({begin, end}, grads_dtype(), Kind::grads).tensor;
    } else {
      piece.block = lower_->at(piece.place).allocate(bytes, Kind::optimizer);
      if (!steps_on_device()) piece.grads_block = lower_->at(piece.place).allocate(grads_bytes, Kind::grads);
    }
    state.pieces.push_back(std::move(piece));
  }
}

// Units that are always there are stepped first: nobody asks for them. In the backward pass it is the other way round:
// their gradients come last.
void Engine::order_pieces(const std::vector<bool>& visited) {
  later_end_.resize(states_.size());
  for (const bool visits : {false, true})
    for (std::size_t u = 0; u < states_.size(); ++u) {
      if (visited[u] != visits) continue;
      for (std::size_t i = 0; i < states_[u].pieces.size(); ++i)
        if (states_[u].pieces[i].stepped_later()) later_.push_back({u, i});
      later_end_[u] = later_.size();
    }
  later_stepped_ = later_.size();
  if (!steps_with_backward()) return;
  std::ranges::reverse(later_);
  for (std::size_t i = 0; i < later_.size(); ++i) later_end_[later_[i].unit] = i + 1;
}

// Beside the device.
bool Engine::host_may_step(const PieceRef& ref) const {
  const UnitState& state = states_[ref.unit];
  const Shares params = Shares::all_in(state.params_place), optimizer = Shares::all_in(state.pieces[ref.piece].place);
  return steps_on_device() && host_step_bar(steps_with_backward(), params, optimizer) == HostStepBar::none;
}

void Engine::make_host_stepper() {
  std::size_t largest = 0;
  int count = 0;
  for (const PieceRef& ref : later_) {
    if (!host_may_step(ref)) continue;
    const UnitState& state = states_[ref.unit];
    const auto elements = static_cast<std::size_t>(state.pieces[ref.piece].extent.elements());
    const bool brings_weights = state.params_place == Place::device;
    largest = std::max(largest, HostStepper::slot_bytes(elements * size_of(grads_dtype()),
                                                        brings_weights ? elements * size_of(options_.dtype) : 0));
    ++count;
  }
  count = std::min(count, options_.host_pieces_under_way);
  if (count > 0) host_stepper_ = std::make_unique<HostStepper>(*lower_, largest, count, timeline_);
}

// At every point of a pass both sides have had their share, so that both have work all the time.
void Engine::deal_sides(double host_share) {
  Dealer deal(Shares{.host = host_share});
  dealt_share_ = host_share;
  in_slots_.clear();
  for (const PieceRef& ref : later_) {
    StatePiece& piece = states_[ref.unit].pieces[ref.piece];
    if (host_stepper_ && host_may_step(ref))
      piece.stepped_by =
          deal.next(piece.extent.elements()) == Place::host ? SteppedBy::host_beside : SteppedBy::device_later;
    if (parts_in_slot(ref).bytes > 0) in_slots_.push_back(ref);
  }
}

// One buffer holds the largest piece that passes through one; and, of weights that live in files, what is moved at
// once.
void Engine::make_slots() {
  make_host_stepper();
  deal_sides(options_.host_share);
  std::size_t largest = 0;
  for (const PieceRef& ref : in_slots_) largest = std::max(largest, parts_in_slot(ref).bytes);
  if (largest > 0)
    slots_ = std::make_unique<StateSlots>(*lower_, options_.step_below_on, largest,
                                          std::min(options_.pieces_under_way, static_cast<int>(in_slots_.size())));
  if (!options_.placement.in_files()) return;
  std::size_t chunk = 0;
  for (const auto& state : states_) {
    const auto elements = std::min(options_.piece_elements, state.own.elements());
    if (state.params_place == Place::nvme)
      chunk = std::max(chunk, StateSlots::whole_pages(static_cast<std::size_t>(elements) * size_of(options_.dtype)));
    for (const auto& piece : state.pieces)
      if (piece.place == Place::nvme) chunk = std::max(chunk, StateSlots::whole_pages(piece.block.bytes()));
  }
  if (chunk > 0)
    for (auto& buffer : weight_buffers_) buffer = lower_->host().allocate(chunk, Kind::working);
  // Weights come and go once: only what every step passes through.
  const bool through_host = slots_ && !steps_on_device();
  lower_->register_buffers(through_host ? slots_->buffers() : std::vector<const Block*>{});
}

// With a cache all units live below: it has the memory that the others would have.
Shares Engine::params_shares() const {
  const Shares& shares = options_.placement.params;
  const double below = shares.host + shares.nvme;
  if (options_.placement.cache == CachePolicy::fixed || below <= 0) return shares;
  return {shares.host / below, shares.nvme / below};
}

void Engine::make_cache() {
  if (options_.placement.cache == CachePolicy::fixed) return;
  std::int64_t bytes = 0;
  for (const auto& state : states_)
    if (state.params_block.defined()) bytes += static_cast<std::int64_t>(state.params_block.bytes());
  cache_bytes_ = std::llround(options_.placement.params.of(Place::device) * static_cast<double>(bytes));
}

void Engine::attach_parameters(std::size_t u) {
  for (const auto& named : plan_.units[u].parameters) {
    named.parameter->leaf().set_dtype(options_.dtype);
    named.parameter->leaf().set_store(this);
  }
  if (states_[u].gathered.defined()) show(u, true);
}

PassPlanner::Options Engine::planner_options() const {
  PassPlanner::Options planner{.units_of_module = {}, .unit_bytes = {}, .prefetch_bytes = options_.prefetch_bytes};
  for (const auto& visit : plan_.visits) planner.units_of_module.push_back(visit.units);
  for (const auto& state : states_) {
    const auto bytes = state.whole.elements() * static_cast<std::int64_t>(size_of(options_.dtype));
    planner.unit_bytes.push_back(state.params_whole ? 0 : bytes);
  }
  return planner;
}

}  // namespace zeepo
