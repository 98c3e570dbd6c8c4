// The engine's step of what is stepped later: what lives below the device, on the host or through the device, and what
// waits for sums from other ranks. Piece by piece in the order of the next forward pass and just ahead of it. What
// passes through buffers is read ahead of its step and written behind it. Where the device steps, the host may step its
// part beside it.
#include <algorithm>
#include <chrono>

#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {
namespace {

std::byte* at(std::byte* memory, std::size_t offset) { return memory ? memory + offset : nullptr; }

}  // namespace

// What of a piece must be brought to where it is stepped, and where in a slot it goes. The host reaches its own memory
// without, all of what it steps beside the device.
Engine::SlotParts Engine::parts_in_slot(const PieceRef& ref) const {
  const UnitState& state = states_[ref.unit];
  const StatePiece& piece = state.pieces[ref.piece];
  const auto away = [&](Place place) {
    return piece.stepped_by == SteppedBy::host_later ? place == Place::nvme : place != Place::device;
  };
  SlotParts parts;
  if (piece.stepped_by == SteppedBy::host_beside) return parts;
  std::size_t end = 0;
  const auto part = [&](std::string_view what, const Block& block, std::size_t offset, std::size_t bytes) {
    const StateSlots::Part result{&block, offset, bytes, end, about(what, ref.unit)};
    end += StateSlots::whole_pages(bytes);
    return result;
  };
  const auto elements = static_cast<std::size_t>(piece.extent.elements());
  if (away(piece.place)) parts.states = part("optimizer", piece.block, 0, piece.block.bytes());
  if (!piece.layout.holds_param && away(state.params_place))
    parts.params =
        part("parameters", state.params_block, params_offset(state, piece.extent), elements * size_of(options_.dtype));
  if (piece.grads_block.defined() && away(piece.place))
    parts.grads = part("gradients", piece.grads_block, 0, piece.grads_block.bytes());
  parts.bytes = end;
  return parts;
}

std::size_t Engine::params_offset(const UnitState& state, const Extent& extent) const {
  return static_cast<std::size_t>(extent.begin - state.own.begin) * size_of(options_.dtype);
}

bool Engine::steps_later(std::size_t u) const {
  return std::ranges::any_of(states_[u].pieces, &StatePiece::stepped_later);
}

void Engine::begin_later_steps() {
  if (host_control_[2] != 0) return;  // skipped
  later_stepped_ = 0;
  slots_end_ = used_slots_ + static_cast<std::int64_t>(in_slots_.size());
  read_ahead();
  for (const PieceRef& ref : later_)
    if (states_[ref.unit].pieces[ref.piece].stepped_by == SteppedBy::host_beside) step_beside(ref);
}

// All of the host's pieces are given out at once, when the step's control is known: it works on while the rank's thread
// gives work to the device. A unit's first use waits for its weights.
void Engine::step_beside(const PieceRef& ref) {
  before_step(ref.unit);
  UnitState& state = states_[ref.unit];
  StatePiece& piece = state.pieces[ref.piece];
  const std::int64_t elements = piece.extent.elements();
  View own{nullptr, options_.dtype, {elements}};  // weights that live in host memory themselves
  if (state.params_block.defined()) own.data = at(state.params_block.data(), params_offset(state, piece.extent));
  HostStepper::Done done = host_stepper_->run(
      {.grads = gradients_of(state, piece.extent),
       .param = state.params_block.defined() ? View{} : state.params.of(piece.extent).view(),
       .after = {piece.written},
       .step =
           [this, unit = ref.unit, extent = piece.extent, own, control = host_control_,
            states = piece.layout.views(piece.block.data(), elements)](Stream& host, const View& grads, View param) {
             step_piece(host, unit, extent, {.states = states, .param = param ? param : own, .grads = grads},
                        {control.data(), DType::f32, {static_cast<std::int64_t>(control.size())}});
           },
       .gradients = about("gradients", ref.unit),
       .parameters = about("parameters", ref.unit),
       .state = about({}, ref.unit)});
  piece.written = host_stepped_ = done.stepped;
  state.parameters_written.push_back(std::move(done.weights));
}

// Gradients that the host has taken may be written over.
void Engine::finish_host_steps() {
  if (host_stepper_) lower_->wait(host_stepped_, Place::host);
}

// States of the next pieces come into all free slots, those of the next step's first ones too, while this step's are
// used up. Gradients come once they are complete.
void Engine::read_ahead() {
  if (!slots_) return;
  const auto cycle = static_cast<std::int64_t>(in_slots_.size());
  const auto piece_of = [&](std::int64_t n) { return in_slots_[static_cast<std::size_t>(n % cycle)]; };
  for (; read_slots_ < used_slots_ + cycle && slots_->in_reach(read_slots_, used_slots_); ++read_slots_) {
    const PieceRef ref = piece_of(read_slots_);
    const SlotParts parts = parts_in_slot(ref);
    for (const auto& part : {parts.states, parts.params})
      if (part) slots_->read(read_slots_, *part, states_[ref.unit].pieces[ref.piece].written);
  }
  for (; read_grads_ < std::min(read_slots_, slots_end_); ++read_grads_) {
    const SlotParts parts = parts_in_slot(piece_of(read_grads_));
    if (parts.grads) slots_->read(read_grads_, *parts.grads, {});
  }
}

// New weights: what was read ahead is of the old ones.
void Engine::forget_read_ahead() {
  if (!slots_) return;
  slots_->drain();
  read_slots_ = read_grads_ = used_slots_;
}

void Engine::step_later_pieces(std::size_t end) {
  if (steps_in_backward() || update_waits_) return;  // all of it was, or comes with the next gradients
  while (later_stepped_ < end) {
    const PieceRef ref = later_[later_stepped_++];
    step_later_piece(ref);
    const bool last = later_stepped_ == later_end_[ref.unit];
    if (last) regather(ref.unit);
  }
}

// One unit further than the visit needs: what its step sends to the device travels under this visit's compute. Sums
// from other ranks travel under it as well, and may not be there.
void Engine::step_ahead(const std::vector<std::size_t>& now) {
  if (now.empty() || options_.prefetch_bytes == 0 || gathers_gradients()) return;
  std::size_t end = 0;
  for (const std::size_t u : now) end = std::max(end, later_end_[u]);
  if (end < later_.size()) step_later_pieces(later_end_[later_[end].unit]);
}

void Engine::step_later_piece(const PieceRef& ref) {
  UnitState& state = states_[ref.unit];
  StatePiece& piece = state.pieces[ref.piece];
  if (piece.stepped_by == SteppedBy::host_beside) return;  // under way since the step began
  before_step(ref.unit);
  const SlotParts parts = parts_in_slot(ref);
  const bool in_slot = parts.bytes > 0;
  const std::int64_t n = used_slots_;
  const PieceMemory memory = memory_of_later(ref, parts, in_slot ? slots_->use(n) : nullptr);
  if (piece.stepped_by == SteppedBy::device_later) {
    const Span span(timeline_, TimelineRow::compute, "step", about({}, ref.unit));
    step_piece(Device::current().compute, ref.unit, piece.extent, memory, control_on_device(ref.unit));
  } else {
    const auto start = std::chrono::steady_clock::now();
    const Span span(timeline_, TimelineRow::host_step, "step", about({}, ref.unit));
    const auto control = control_on_host(ref.unit);
    step_piece(lower_->host_stream(), ref.unit, piece.extent, memory,
               {control.data(), DType::f32, {static_cast<std::int64_t>(control.size())}});
    step_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  if (parts.states) piece.written = slots_->write(n, *parts.states);
  if (parts.params) {
    piece.written = slots_->write(n, *parts.params);
    state.parameters_written.push_back(piece.written);
  }
  if (piece.layout.holds_param) {  // to where the compute uses them
    const View to = state.params.of(piece.extent).view();
    state.parameters_written.push_back(lower_->upload(static_cast<const std::byte*>(memory.param.data), to.data,
                                                      to.bytes(), about("parameters", ref.unit)));
    if (in_slot) slots_->hold(n, state.parameters_written.back());
  }
  if (!in_slot) return;
  ++used_slots_;
  read_ahead();
}

Engine::PieceMemory Engine::memory_of_later(const PieceRef& ref, const SlotParts& parts, std::byte* slot) const {
  const UnitState& state = states_[ref.unit];
  const StatePiece& piece = state.pieces[ref.piece];
  const std::int64_t elements = piece.extent.elements();
  const auto in_slot = [&](const StateSlots::Part& part) { return at(slot, part.at); };
  const auto own = [&](const Block& block, const Tensor& tensor) {
    return block.defined() ? block.data() : static_cast<std::byte*>(tensor.view().data);
  };
  PieceMemory memory;
  memory.states = piece.layout.views(parts.states ? in_slot(*parts.states) : own(piece.block, piece.device), elements);
  if (piece.layout.holds_param)
    memory.param = memory.states.param;
  else if (parts.params)
    memory.param = {in_slot(*parts.params), options_.dtype, {elements}};
  else if (state.params_block.defined())
    memory.param = {at(state.params_block.data(), params_offset(state, piece.extent)), options_.dtype, {elements}};
  else
    memory.param = state.params.of(piece.extent).view();
  if (!piece.grads_block.defined())
    memory.grads = gradients_of(state, piece.extent);
  else
    memory.grads = {parts.grads ? in_slot(*parts.grads) : piece.grads_block.data(), grads_dtype(), {elements}};
  return memory;
}

}  // namespace zeepo
