#include "zeepo/zero/state_store.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

std::byte* at(std::byte* memory, std::size_t offset) { return memory ? memory + offset : nullptr; }
std::byte* bytes_of(const Tensor& tensor) { return static_cast<std::byte*>(tensor.view().data); }

}  // namespace

StateStore::StateStore(const UnitPlan& units, const StatePlan& plan)
    : names_(units), plan_(plan), lower_(Device::current().lower), units_(plan.units.size()) {
  if (!lower_ && !plan.options.placement.on_device())
    throw Error("engine: there is no memory to offload to; make a Session with host memory");
  for (std::size_t u = 0; u < units_.size(); ++u) allocate(u);
}

StateStore::~StateStore() {
  try {
    drain();
  } catch (const std::exception&) {  // whoever needed the bytes has been told
  }
}

void StateStore::allocate(std::size_t u) {
  const UnitStates& states = plan_.units[u];
  UnitMemory& unit = units_[u];
  const EngineOptions& options = plan_.options;
  const auto bytes_in = [](const Extent& extent, DType dtype) {
    return static_cast<std::size_t>(extent.elements()) * size_of(dtype);
  };
  if (states.params_offloaded())
    unit.params_block =
        lower_->at(states.params_place).allocate(bytes_in(states.own, options.dtype), Kind::params);
  else
    unit.params = zeros(states.params_whole ? states.whole : states.own, options.dtype, Kind::params);
  for (const PiecePlan& piece : states.pieces) {
    PieceMemory& memory = unit.pieces.emplace_back();
    const std::size_t bytes = piece.layout.bytes(piece.extent.elements());
    if (piece.place == Place::device) {
      memory.device = zeros({0, static_cast<std::int64_t>(bytes / 2)}, DType::i16, Kind::optimizer).tensor;
      if (piece.keeps_gradients)
        memory.device_grads = zeros(piece.extent, plan_.gradient_dtype(), Kind::grads).tensor;
    } else {
      memory.block = lower_->at(piece.place).allocate(bytes, Kind::optimizer);
      if (piece.keeps_gradients)
        memory.grads_block =
            lower_->at(piece.place).allocate(bytes_in(piece.extent, plan_.gradient_dtype()), Kind::grads);
    }
  }
  if (!states.trained) return;
  if (states.gradients == GradientsKept::whole || states.gradients == GradientsKept::shard)
    unit.grads = zeros(states.gradients == GradientsKept::whole ? states.whole : states.own, plan_.gradient_dtype(),
                       Kind::grads);
  if (states.sums_locally) unit.local_sum = zeros(states.whole, DType::f32, Kind::grads).tensor;
}

Completion StateStore::bring_params(std::size_t u, const View& to) {
  UnitMemory& unit = units_[u];
  return lower_->to_device(unit.params_block, 0, to.data, to.bytes(), names_.about("parameters", u),
                           std::exchange(unit.params_written, {}));
}

void StateStore::wait_params_written(std::size_t u) {
  for (auto& written : std::exchange(units_[u].params_written, {})) lower_->wait(written, Place::host);
}

Tensor StateStore::gradients(std::size_t u, const Extent& extent) const {
  const UnitMemory& unit = units_[u];
  if (unit.grads.defined()) return unit.grads.of(extent);
  if (!unit.fresh.defined()) return {};
  return unit.fresh.part(extent.begin - plan_.units[u].own.begin, {extent.elements()});
}

std::vector<Completion> StateStore::bring_sum(std::size_t u, const Tensor& to) {
  const UnitStates& states = plan_.units[u];
  std::vector<Completion> arriving;
  for (std::size_t i = 0; i < states.pieces.size(); ++i) {
    const PieceMemory& piece = units_[u].pieces[i];
    const Extent& extent = states.pieces[i].extent;
    const Tensor part = to.part(extent.begin - states.own.begin, {extent.elements()});
    if (piece.grads_block.defined())
      arriving.push_back(lower_->to_device(piece.grads_block, 0, part.view().data, part.view().bytes(),
                                           names_.about("gradients", u), {piece.grads_written}));
    else
      launch([&](auto& s) { copy(s, piece.device_grads.view(), part.view()); });
  }
  return arriving;
}

std::vector<StateStore::Leaving> StateStore::keep_sum(std::size_t u, const Tensor& sum) {
  const UnitStates& states = plan_.units[u];
  if (!plan_.keeps_gradients()) units_[u].fresh = sum;
  std::vector<Leaving> leaving;
  for (std::size_t i = 0; i < states.pieces.size(); ++i) {
    PieceMemory& piece = units_[u].pieces[i];
    const Extent& extent = states.pieces[i].extent;
    const Tensor part = sum.part(extent.begin - states.own.begin, {extent.elements()});
    if (piece.device_grads.defined()) launch([&](auto& s) { copy(s, part.view(), piece.device_grads.view()); });
    if (!piece.grads_block.defined()) continue;
    piece.grads_written = lower_->from_device(part.view().data, piece.grads_block, 0, part.view().bytes(),
                                              names_.about("gradients", u));
    leaving.push_back({part, piece.grads_written, states.pieces[i].place});
  }
  return leaving;
}

void StateStore::set_order(const std::vector<PieceId>& pieces, const std::vector<SteppedBy>& sides) {
  forget_read_ahead();
  used_ = read_ = grads_read_ = grads_end_ = 0;
  order_.clear();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (SlotParts parts = slot_parts(plan_, pieces[i], sides[i]); parts.bytes > 0) order_.push_back({pieces[i], parts});
  if (!std::exchange(buffers_made_, true)) make_buffers();
}

// A slot holds the largest piece that passes through one. Windows on files hold a piece of state, and as many weights.
void StateStore::make_buffers() {
  std::size_t largest = 0;
  for (const Passing& passing : order_) largest = std::max(largest, passing.parts.bytes);
  if (largest > 0)
    slots_ = std::make_unique<StateSlots>(*lower_, plan_.options.step_below_on, largest,
                                          std::min(plan_.options.pieces_under_way, static_cast<int>(order_.size())));
  if (!plan_.options.placement.in_files()) return;
  std::size_t window = 0;
  for (const auto& states : plan_.units) {
    const auto elements = std::min(plan_.options.piece_elements, states.own.elements());
    if (states.params_place == Place::nvme)
      window = std::max(window, whole_pages(static_cast<std::size_t>(elements) * size_of(plan_.options.dtype)));
    for (const auto& piece : states.pieces)
      if (piece.place == Place::nvme)
        window = std::max(window, whole_pages(piece.layout.bytes(piece.extent.elements())));
  }
  if (window > 0)
    for (auto& buffer : window_buffers_) buffer = lower_->host().allocate(window, Kind::working);
  // Windows come and go once: only what every step passes through.
  const bool through_host = slots_ && !plan_.steps_on_device();
  lower_->register_buffers(through_host ? slots_->buffers() : std::vector<const Block*>{});
}

void StateStore::set_reach(int pieces) {
  if (slots_) slots_->set_reach(pieces);
}

StateSlots::Part StateStore::slot_part(const PieceId& id, const SlotParts::Part& part, std::string_view what,
                                       const Block& block) const {
  return {&block, part.offset, part.bytes, part.at, names_.about(what, id.unit)};
}

void StateStore::expect_gradients(std::int64_t count) {
  grads_end_ = used_ + count;
  read_ahead();
}

// States of the next pieces come into all free slots, those of the next round's first ones too, while this round's are
// used up.
void StateStore::read_ahead() {
  if (!slots_) return;
  const auto cycle = static_cast<std::int64_t>(order_.size());
  const auto passing = [&](std::int64_t n) -> const Passing& { return order_[static_cast<std::size_t>(n % cycle)]; };
  for (; read_ < used_ + cycle && slots_->in_reach(read_, used_); ++read_) {
    const auto& [id, parts] = passing(read_);
    const PieceMemory& piece = memory(id);
    if (parts.states) slots_->read(read_, slot_part(id, *parts.states, "optimizer", piece.block), piece.written);
    if (parts.params)
      slots_->read(read_, slot_part(id, *parts.params, "parameters", units_[id.unit].params_block), piece.written);
  }
  for (; grads_read_ < std::min(read_, grads_end_); ++grads_read_) {
    const auto& [id, parts] = passing(grads_read_);
    if (parts.grads) slots_->read(grads_read_, slot_part(id, *parts.grads, "gradients", memory(id).grads_block), {});
  }
}

void StateStore::forget_read_ahead() {
  if (!slots_) return;
  slots_->drain();
  read_ = grads_read_ = used_;
}

void StateStore::start_round() {
  if (!slots_) return;
  const auto cycle = static_cast<std::int64_t>(order_.size());
  used_ = (used_ + cycle - 1) / cycle * cycle;
  forget_read_ahead();
}

OpenPiece StateStore::open(const PieceId& id, SteppedBy by) {
  forget_windows();  // their weights are those before the step
  const PiecePlan& plan = plan_.piece(id);
  const UnitMemory& unit = units_[id.unit];
  const PieceMemory& piece = unit.pieces[id.piece];
  const std::int64_t elements = plan.extent.elements();
  OpenPiece open{.states = {}, .param = {}, .grads = {}, .parts = slot_parts(plan_, id, by)};
  std::byte* slot = nullptr;
  if (open.parts.bytes > 0) {
    open.slot = used_;
    slot = slots_->use(used_);
  }
  const auto in_slot = [&](const SlotParts::Part& part) { return at(slot, part.at); };
  std::byte* const own = piece.block.defined() ? piece.block.data() : bytes_of(piece.device);
  open.states = plan.layout.views(open.parts.states ? in_slot(*open.parts.states) : own, elements);
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
    open.grads = {open.parts.grads ? in_slot(*open.parts.grads) : piece.grads_block.data(), plan_.gradient_dtype(),
                  {elements}};
  else
    open.grads = gradients(id.unit, plan.extent).view();
  return open;
}

void StateStore::close(const PieceId& id, const OpenPiece& open) {
  const PiecePlan& plan = plan_.piece(id);
  UnitMemory& unit = units_[id.unit];
  PieceMemory& piece = unit.pieces[id.piece];
  if (open.parts.states)
    piece.written = slots_->write(*open.slot, slot_part(id, *open.parts.states, "optimizer", piece.block));
  if (open.parts.params) {
    piece.written = slots_->write(*open.slot, slot_part(id, *open.parts.params, "parameters", unit.params_block));
    unit.params_written.push_back(piece.written);
  }
  if (plan.layout.holds_param) {  // to where the compute finds the weights
    const About about = names_.about("parameters", id.unit);
    if (unit.params_block.defined()) {
      unit.params_written.push_back(lower_->from_device(open.param.data, unit.params_block,
                                                        plan_.param_offset(id.unit, plan.extent), open.param.bytes(),
                                                        about));
    } else {
      const View to = unit.params.of(plan.extent).view();
      unit.params_written.push_back(
          lower_->upload(static_cast<const std::byte*>(open.param.data), to.data, to.bytes(), about));
      if (open.slot) slots_->hold(*open.slot, unit.params_written.back());
    }
  }
  if (!open.slot) return;
  ++used_;
  read_ahead();
}

StateStore::HostPiece StateStore::on_host(const PieceId& id) const {
  const PiecePlan& plan = plan_.piece(id);
  const UnitMemory& unit = units_[id.unit];
  const PieceMemory& piece = unit.pieces[id.piece];
  const std::int64_t elements = plan.extent.elements();
  HostPiece host{.states = plan.layout.views(piece.block.data(), elements),
                 .own_param = {},
                 .device_param = {},
                 .after = {piece.written}};
  if (unit.params_block.defined())
    host.own_param = {at(unit.params_block.data(), plan_.param_offset(id.unit, plan.extent)), plan_.options.dtype,
                      {elements}};
  else
    host.device_param = unit.params.of(plan.extent).view();
  return host;
}

void StateStore::stepped_on_host(const PieceId& id, const Completion& state, const Completion& weights) {
  forget_windows();
  memory(id).written = state;
  units_[id.unit].params_written.push_back(weights);
}

void StateStore::clear_device_state() {
  for (const auto& unit : units_)
    for (const auto& piece : unit.pieces)
      if (piece.device.defined()) launch([&](auto& s) { fill(s, piece.device.view(), 0); });
}

void StateStore::drain() {
  if (slots_) slots_->drain();
  for (auto& unit : units_) {
    for (auto& written : unit.params_written) written.wait();
    for (auto& piece : unit.pieces) {
      piece.written.wait();
      piece.grads_written.wait();
    }
  }
}

}  // namespace zeepo
