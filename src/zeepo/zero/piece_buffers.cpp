#include "zeepo/zero/piece_buffers.h"

#include <algorithm>
#include <utility>

#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

std::byte* at(std::byte* memory, std::size_t offset) { return memory ? memory + offset : nullptr; }

}  // namespace

PieceBuffers::PieceBuffers(const UnitPlan& units, const StatePlan& plan, StateStore& store)
    : names_(units), plan_(plan), store_(store), lower_(Device::current().lower) {}

void PieceBuffers::set_order(const std::vector<PieceId>& pieces, const std::vector<SteppedBy>& sides) {
  forget_read_ahead();
  used_ = read_ = grads_read_ = grads_end_ = 0;
  order_.clear();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (SlotParts parts = slot_parts(plan_, pieces[i], sides[i]); parts.bytes > 0) order_.push_back({pieces[i], parts});
  if (!std::exchange(buffers_made_, true)) make_buffers();
}

// A slot holds the largest piece that passes through one.
void PieceBuffers::make_buffers() {
  std::size_t largest = 0;
  for (const Passing& passing : order_) largest = std::max(largest, passing.parts.bytes);
  if (largest > 0)
    slots_ = std::make_unique<StateSlots>(*lower_, plan_.options.step_below_on, largest,
                                          std::min(plan_.options.pieces_under_way, static_cast<int>(order_.size())));
  if (!plan_.options.placement.in_files()) return;
  const bool through_host = slots_ && !plan_.steps_on_device();
  lower_->register_buffers(through_host ? slots_->buffers() : std::vector<const Block*>{});
}

void PieceBuffers::set_reach(int pieces) {
  if (slots_) slots_->set_reach(pieces);
}

StateSlots::Part PieceBuffers::slot_part(const PieceId& id, const SlotParts::Part& part, std::string_view what,
                                         const Block& block) const {
  return {&block, part.offset, part.bytes, part.at, names_.about(what, id.unit)};
}

void PieceBuffers::expect_gradients(std::int64_t count) {
  grads_end_ = used_ + count;
  read_ahead();
}

// States of the next pieces come into all free slots, those of the next round's first ones too, while this round's are
// used up.
void PieceBuffers::read_ahead() {
  if (!slots_) return;
  const auto cycle = static_cast<std::int64_t>(order_.size());
  const auto passing = [&](std::int64_t n) -> const Passing& { return order_[static_cast<std::size_t>(n % cycle)]; };
  for (; read_ < used_ + cycle && slots_->in_reach(read_, used_); ++read_) {
    const auto& [id, parts] = passing(read_);
    const StateStore::PieceMemory& piece = store_.piece(id);
    if (parts.states) slots_->read(read_, slot_part(id, *parts.states, "optimizer", piece.block), piece.written);
    if (parts.params)
      slots_->read(read_, slot_part(id, *parts.params, "parameters", store_.unit(id.unit).params_block), piece.written);
  }
  for (; grads_read_ < std::min(read_, grads_end_); ++grads_read_) {
    const auto& [id, parts] = passing(grads_read_);
    if (parts.grads)
      slots_->read(grads_read_, slot_part(id, *parts.grads, "gradients", store_.piece(id).grads_block), {});
  }
}

void PieceBuffers::forget_read_ahead() {
  if (!slots_) return;
  slots_->drain();
  read_ = grads_read_ = used_;
}

void PieceBuffers::start_round() {
  if (!slots_) return;
  const auto cycle = static_cast<std::int64_t>(order_.size());
  used_ = (used_ + cycle - 1) / cycle * cycle;
  forget_read_ahead();
}

OpenPiece PieceBuffers::open(const PieceId& id, SteppedBy by) {
  store_.count_change();
  const PiecePlan& plan = plan_.piece(id);
  const StateStore::UnitMemory& unit = store_.unit(id.unit);
  const StateStore::PieceMemory& piece = unit.pieces[id.piece];
  const std::int64_t elements = plan.extent.elements();
  OpenPiece open{.states = {}, .param = {}, .grads = {}, .parts = slot_parts(plan_, id, by)};
  std::byte* slot = nullptr;
  if (open.parts.bytes > 0) {
    open.slot = used_;
    slot = slots_->use(used_);
  }
  const auto in_slot = [&](const SlotParts::Part& part) { return at(slot, part.at); };
  open.states = plan.layout.views(open.parts.states ? in_slot(*open.parts.states) : piece.state(), elements);
  const DType dtype = plan_.options.dtype;
  if (plan.layout.holds_param)
    open.param = open.states.param;
  else if (open.parts.params)
    open.param = {in_slot(*open.parts.params), dtype, {elements}};
  else if (unit.params_block.defined())
    open.param = {at(unit.params_block.data(), plan_.param_offset(id.unit, plan.extent)), dtype, {elements}};
  else
    open.param = unit.params.of(plan.extent).view();
  if (piece.device_grads.defined())
    open.grads = piece.device_grads.view();
  else if (piece.grads_block.defined())
    open.grads = {
        open.parts.grads ? in_slot(*open.parts.grads) : piece.grads_block.data(), plan_.gradient_dtype(), {elements}};
  else
    open.grads = store_.gradients(id.unit, plan.extent).view();
  return open;
}

void PieceBuffers::close(const PieceId& id, const OpenPiece& open) {
  const PiecePlan& plan = plan_.piece(id);
  StateStore::UnitMemory& unit = store_.unit(id.unit);
  StateStore::PieceMemory& piece = unit.pieces[id.piece];
  if (open.parts.states)
    piece.written = slots_->write(*open.slot, slot_part(id, *open.parts.states, "optimizer", piece.block));
  if (open.parts.params) {
    piece.written = slots_->write(*open.slot, slot_part(id, *open.parts.params, "parameters", unit.params_block));
    unit.params_written.push_back(piece.written);
  }
  if (plan.layout.holds_param) {  // to where the compute finds the weights
    const About about = names_.about("parameters", id.unit);
    if (unit.params_block.defined()) {
      unit.params_written.push_back(lower_->from_device(
          open.param.data, unit.params_block, plan_.param_offset(id.unit, plan.extent), open.param.bytes(), about));
    } else {
      const View to = unit.params.of(plan.extent).view();
      unit.params_written.push_back(
          lower_->upload(static_cast<const std::byte*>(open.param.data), to.data, to.bytes(), about));
      if (open.slot) slots_->reserve_until(*open.slot, unit.params_written.back());
    }
  }
  if (!open.slot) return;
  ++used_;
  read_ahead();
}

}  // namespace zeepo
