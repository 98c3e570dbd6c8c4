#include "zeepo/zero/step_queue.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <tuple>
#include <utility>

#include "zeepo/base/first_failure.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// Neither weights nor moments change by such a rule, which is that of parameters without a gradient; Adam's corrections
// would be 0.
bool changes_nothing(const StepRule& rule) {
  const OptimizerOptions& of = rule.optimizer;
  return rule.rate == 0 && of.weight_decay == 0 && of.beta1 == 1 && of.beta2 == 1 && of.momentum == 1;
}

bool same_rule(const StepRule& a, const StepRule& b) {
  const auto numbers = [](const StepRule& rule) {
    const OptimizerOptions& of = rule.optimizer;
    return std::tuple(rule.rate, of.beta1, of.beta2, of.eps, of.momentum, of.weight_decay);
  };
  return numbers(a) == numbers(b);
}

// Neighbours among the ranges, from `first` on, that one rule steps: they are stepped as one.
std::size_t end_of_rule(const std::vector<StepRange>& ranges, std::size_t first, const StepRules& rules) {
  std::size_t next = first + 1;
  if (rules.groups.empty()) return next;
  while (next < ranges.size() && ranges[next].decays == ranges[first].decays &&
         ranges[next].extent.begin == ranges[next - 1].extent.end &&
         same_rule(rules.groups[ranges[next].group], rules.groups[ranges[first].group]))
    ++next;
  return next;
}

// Reads the plan alone, which does not change: any thread may call it.
void step_extent(Stream& stream, const StatePlan& plan, const PieceId& id, const OpenPiece& open, ConstView control,
                 const StepContext& step) {
  const UnitStates& unit = plan.units[id.unit];
  const Extent& extent = plan.piece(id).extent;
  for (std::size_t first = 0, next = 0; first < unit.ranges.size(); first = next) {
    next = end_of_rule(unit.ranges, first, step.rules);
    const StepRange& stepped = unit.ranges[first];
    const Extent range = common({stepped.extent.begin, unit.ranges[next - 1].extent.end}, extent);
    const StepRule rule = step.rules.of(stepped.group, plan.options.optimizer);
    if (range.empty() || changes_nothing(rule)) continue;
    const std::int64_t begin = range.begin - extent.begin, count = range.elements();
    const StateViews states = open.states.part(begin, count);
    zeepo::step(stream, rule.optimizer,
                {.weights = {part_of(open.param, begin, count), states.remainder},
                 .grad = part_of(open.grads, begin, count),
                 .states = states.moments,
                 .weight_decay = stepped.decays ? rule.optimizer.weight_decay : 0,
                 .first = unit.first_weight + range.begin},
                control, step.number, rule.rate);
  }
}

ConstView view_of(const StepControl& control) { return {&control, DType::f32, {sizeof(StepControl) / sizeof(float)}}; }

}  // namespace

StepQueue::StepQueue(const UnitPlan& units, const StatePlan& plan, const Rooms& rooms)
    : names_(units),
      plan_(plan),
      rooms_(rooms),
      lower_(Device::current().lower),
      timeline_(Device::current().timeline),
      host_share_(plan.options.host_share),
      sides_(deal_sides(plan, plan.options.host_share)),
      stepped_(plan.deferred.size()),
      ready_(plan.units.size()) {
  make_host_stepper();
  rooms_.buffers.set_order(plan_.deferred, sides_);
}

void StepQueue::make_host_stepper() {
  std::size_t largest = 0;
  int count = 0;
  for (const PieceId& id : plan_.deferred) {
    if (!host_may_step(plan_, id)) continue;
    const auto elements = static_cast<std::size_t>(plan_.piece(id).extent.elements());
    const bool brings_weights = !plan_.units[id.unit].params_offloaded();
    largest = std::max(largest, HostStepper::slot_bytes(elements * size_of(plan_.gradient_dtype()),
                                                        brings_weights ? elements * size_of(plan_.options.dtype) : 0));
    ++count;
  }
  count = std::min(count, plan_.options.host_pieces_under_way);
  if (count > 0) host_stepper_ = std::make_unique<HostStepper>(*lower_, largest, count, timeline_);
}

void StepQueue::step_now(std::size_t u, const StepContext& step) {
  step_ = step;
  const auto& pieces = plan_.units[u].pieces;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (!is_deferred(pieces[i].stepped_by)) step_piece({u, i}, SteppedBy::device_at_once);
  if (!plan_.any_deferred(u)) finish_unit(u);
}

// Where the unit's next use finds its weights.
void StepQueue::finish_unit(std::size_t u) {
  rooms_.weights.publish(u);
  rooms_.store.drop_fresh(u);
}

void StepQueue::step_piece(const PieceId& id, SteppedBy by) {
  rooms_.reducer.wait_for_gathered(id.unit);
  rooms_.snapshot.before_step(id);
  const OpenPiece open = rooms_.buffers.open(id, by);
  const About about = names_.about({}, id.unit);
  if (by == SteppedBy::host_deferred) {
    const auto start = std::chrono::steady_clock::now();
    const Span span(timeline_, TimelineRow::host_step, "step", about);
    const StepControl control =
        plan_.steps_in_backward() ? rooms_.norm.unit_control_on_host(id.unit) : rooms_.norm.on_host();
    step_extent(lower_->host_stream(), plan_, id, open, view_of(control), step_);
    stalled_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } else {
    const Span span(timeline_, TimelineRow::compute, "step", about);
    const ConstView control = plan_.steps_in_backward() ? rooms_.norm.unit_control(id.unit) : rooms_.norm.control();
    step_extent(Device::current().compute, plan_, id, open, control, step_);
  }
  rooms_.buffers.close(id, open);
  rooms_.snapshot.after_step(id);
}

// The host's pieces are given out all together, when the step's control is known: the host works on while the rank's
// thread gives work to the device. A unit's first use waits for its weights.
void StepQueue::step_beside(const PieceId& id) {
  rooms_.reducer.wait_for_gathered(id.unit);
  rooms_.snapshot.before_step(id);
  const PiecePlan& piece = plan_.piece(id);
  StateStore::UnitMemory& unit = rooms_.store.unit(id.unit);
  StateStore::PieceMemory& memory = rooms_.store.piece(id);
  const std::int64_t elements = piece.extent.elements();
  View own{nullptr, plan_.options.dtype, {elements}};  // weights in host memory, beside the state
  if (unit.params_block.defined() && unit.params_block.data() != nullptr)
    own.data = unit.params_block.data() + plan_.param_offset(id.unit, piece.extent);
  const About gradients = names_.about("gradients", id.unit), parameters = names_.about("parameters", id.unit);
  HostStepper::Done done = host_stepper_->run(
      {.grads = rooms_.store.gradients(id.unit, piece.extent).view(),
       .param = unit.params_block.defined() ? View{} : unit.params.of(piece.extent).view(),
       .after = {memory.written},
       .step =
           [&plan = plan_, id, own, states = piece.layout.views(memory.state(), elements),
            control = rooms_.norm.on_host(), step = step_](Stream& host, const View& grads, const View& param) {
             const OpenPiece open{.states = states, .param = param ? param : own, .grads = grads};
             step_extent(host, plan, id, open, view_of(control), step);
           },
       .gradients = gradients,
       .parameters = parameters,
       .state = names_.about({}, id.unit)});
  rooms_.store.count_change();
  memory.written = host_stepped_ = done.stepped;
  unit.params_written.push_back(std::move(done.weights));
}

// Of deferred pieces, how many pass through a buffer of the store.
std::int64_t StepQueue::passing(std::size_t begin, std::size_t end) const {
  std::int64_t count = 0;
  for (std::size_t i = begin; i < end; ++i)
    if (slot_parts(plan_, plan_.deferred[i], sides_[i]).bytes > 0) ++count;
  return count;
}

void StepQueue::ready_all(const StepContext& step) {
  step_ = step;
  stepped_ = 0;
  rooms_.buffers.expect_gradients(passing(0, plan_.deferred.size()));
  for (std::size_t i = 0; i < plan_.deferred.size(); ++i)
    if (sides_[i] == SteppedBy::host_beside)
      step_beside(plan_.deferred[i]);
    else
      rooms_.snapshot.announce_step(plan_.deferred[i]);
}

void StepQueue::begin_in_backward(const StepContext& step) {
  step_ = step;
  for (std::size_t u = 0; u < plan_.units.size(); ++u) rooms_.store.wait_params_written(u);
  ready_.assign(plan_.units.size(), false);
  stepped_ = 0;
  rooms_.buffers.expect_gradients(0);
}

// Deferred pieces pass through the buffers in one order: a unit that is reduced out of turn waits for those before it.
void StepQueue::ready(const std::vector<std::size_t>& units) {
  if (units.empty()) return;
  for (const std::size_t u : units) {
    step_now(u, step_);
    ready_[u] = true;
  }
  std::size_t end = stepped_;
  while (end < plan_.deferred.size() && ready_[plan_.deferred[end].unit]) ++end;
  rooms_.buffers.expect_gradients(passing(stepped_, end));
  step_deferred(end);
}

void StepQueue::step_deferred(std::size_t end) {
  while (stepped_ < end) {
    const PieceId& id = plan_.deferred[stepped_];
    const SteppedBy by = sides_[stepped_++];
    if (by != SteppedBy::host_beside) step_piece(id, by);  // else under way since the step began
    if (stepped_ == plan_.deferred_end[id.unit]) finish_unit(id.unit);
  }
}

void StepQueue::until(std::size_t u) {
  if (!plan_.steps_in_backward()) step_deferred(plan_.deferred_end[u]);
}

// Gradient sums from other ranks travel under the visit as well, and may not be there.
void StepQueue::ahead_of(const std::vector<std::size_t>& units) {
  const bool overlaps = plan_.options.prefetch_bytes > 0 && !plan_.gathers_gradients();
  if (units.empty() || !overlaps || plan_.steps_in_backward()) return;
  std::size_t end = 0;
  for (const std::size_t u : units) end = std::max(end, plan_.deferred_end[u]);
  if (end < plan_.deferred.size()) step_deferred(plan_.deferred_end[plan_.deferred[end].unit]);
}

void StepQueue::finish() {
  if (!plan_.steps_in_backward()) step_deferred(plan_.deferred.size());
}

void StepQueue::wait_for_host() {
  if (host_stepper_) lower_->wait(host_stepped_, Place::host);
}

void StepQueue::set_host_share(double share) {
  if (!host_stepper_ || share == host_share_) return;
  host_share_ = share;
  sides_ = deal_sides(plan_, share);
  rooms_.buffers.set_order(plan_.deferred, sides_);
}

// Of units stepped in part the other ranks see what was stepped when the next pass begins: the ranks may not all have
// failed, or not at the same place, and a collective now would hide why.
void StepQueue::abandon() {
  for (std::size_t u = 0; u < plan_.units.size(); ++u) rooms_.store.drop_fresh(u);
  if (!plan_.steps_in_backward() || stepped_ == plan_.deferred.size()) return;
  for (std::size_t u = 0; u < plan_.units.size(); ++u)
    if (ready_[u] && plan_.deferred_end[u] > stepped_ && plan_.any_deferred(u)) rooms_.weights.publish_later(u);
  stepped_ = plan_.deferred.size();
  FirstFailure told;  // not to hide what ended the pass: every later transfer throws the same
  told.outlast([&] { rooms_.buffers.start_round(); });
}

void StepQueue::outlast() noexcept {
  FirstFailure told;
  told.outlast([&] {
    if (host_stepper_) host_stepper_->drain();
  });
}

}  // namespace zeepo
