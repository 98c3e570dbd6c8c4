#include "zeepo/zero/state_store.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/work_count.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/weights_in_files.h"

namespace zeepo {

std::byte* StateStore::PieceMemory::state() const {
  return block.defined() ? block.data() : static_cast<std::byte*>(device.view().data);
}

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
  if (states.in_others_files)
    unit.params_parts = options.in_files->parts_of(names_.units[u], states.own, size_of(options.dtype));
  else if (states.params_offloaded())
    unit.params_block =
        lower_->at(states.params_place)
            .allocate(states.form.coded() ? states.form.bytes() : bytes_in(states.own, options.dtype), Kind::params);
  else if (states.form.coded())
    unit.coded = Tensor({static_cast<std::int64_t>(states.form.bytes())}, DType::u8, Kind::params);
  else
    unit.params =
        zeros(states.params_whole && !states.decoded_apart() ? states.whole : states.own, options.dtype, Kind::params);
  if (states.decoded_apart()) unit.decoded = zeros(states.whole, options.dtype, Kind::params).tensor;
  for (const PiecePlan& piece : states.pieces) {
    PieceMemory& memory = unit.pieces.emplace_back();
    const std::size_t bytes = piece.layout.bytes(piece.extent.elements());
    if (piece.place == Place::device) {
      memory.device = zeros({0, static_cast<std::int64_t>(bytes / 2)}, DType::i16, Kind::optimizer).tensor;
      if (piece.keeps_gradients) memory.device_grads = zeros(piece.extent, plan_.gradient_dtype(), Kind::grads).tensor;
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
  if (plan_.units[u].in_others_files)
    return lower_->to_device(unit.params_parts, to.data, names_.about("parameters", u));
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
    piece.grads_written =
        lower_->from_device(part.view().data, piece.grads_block, 0, part.view().bytes(), names_.about("gradients", u));
    leaving.push_back({part, piece.grads_written, states.pieces[i].place});
  }
  return leaving;
}

void StateStore::clear_device_state() {
  for (const auto& unit : units_)
    for (const auto& piece : unit.pieces)
      if (piece.device.defined()) launch([&](auto& s) { fill(s, piece.device.view(), 0); });
}

void StateStore::drain() {
  count_work(static_cast<std::int64_t>(units_.size()));
  for (auto& unit : units_) {
    for (auto& written : unit.params_written) written.wait();
    for (auto& piece : unit.pieces) {
      piece.written.wait();
      piece.grads_written.wait();
    }
  }
}

}  // namespace zeepo
