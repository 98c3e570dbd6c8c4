// The engine's weights in and out, piece by piece: no rank ever holds a copy of the model for it.
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "zeepo/base/error.h"
#include "zeepo/device/copy.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {
namespace {

constexpr std::int64_t kPiece = 1 << 20;  // elements on their way in or out

// Cut at multiples of `size` from the start of `origin` on.
template <class F>
void in_pieces(const Extent& extent, std::int64_t origin, std::int64_t size, F&& f) {
  for (std::int64_t begin = extent.begin; begin < extent.end;) {
    const std::int64_t end = std::min(extent.end, origin + ((begin - origin) / size + 1) * size);
    f(Extent{begin, end});
    begin = end;
  }
}

}  // namespace

// A chunk of weights in host memory: as they were read, and as they are kept.
struct Engine::HostWeights {
  std::vector<float> values;
  std::vector<std::byte> param, low;
};

void Engine::load(const WeightSource& source) {
  settle();
  hold({});  // what was gathered ahead of the next pass would be of the old weights
  empty_slots();
  if (!Device::current().compute.dry()) {
    HostWeights host;
    for (std::size_t u = 0; u < states_.size(); ++u) load_unit(u, source, host);
  }
  if (collectives_.alone()) return;
  for (std::size_t u = 0; u < states_.size(); ++u) {
    UnitState& state = states_[u];
    const auto gather = [&](ConstView own, View all) {
      Completion done = collectives_.all_gather(own, all, label("first weights", u));
      collectives_.wait(done);
    };
    if (state.params_whole()) gather(state.params.of(state.own).view(), state.params.tensor.view());
    if (!state.trained || state.stepped != state.whole) continue;
    const View low = on_device(state, state.pieces[0]).states.low;
    if (state.pieces[0].layout.low()) gather(part_of(low, state.own.begin, state.own.elements()), low);
  }
}

// The unit's own shard, in chunks that files can take.
void Engine::load_unit(std::size_t u, const WeightSource& source, HostWeights& host) {
  const UnitState& state = states_[u];
  in_pieces(state.own, state.own.begin, options_.piece_elements, [&](const Extent& chunk) {
    host.values.assign(static_cast<std::size_t>(chunk.elements()), 0.0f);
    for (const auto& [slice, place] : slices_of_unit_[u])
      in_pieces(common({place.offset, place.offset + slice.shape.elements()}, chunk), 0, kPiece,
                [&, &slice = slice, &place = place](const Extent& part) {
                  const auto out = std::span(host.values)
                                       .subspan(static_cast<std::size_t>(part.begin - chunk.begin),
                                                static_cast<std::size_t>(part.elements()));
                  source(slice, part.begin - place.offset, out);
                });
    write_chunk(u, chunk, host);
  });
}

void Engine::write_chunk(std::size_t u, const Extent& chunk, HostWeights& host) {
  UnitState& state = states_[u];
  const std::int64_t n = chunk.elements();
  const auto low_dtype = StateLayout{.dtype = options_.dtype}.low();
  host.param.resize(static_cast<std::size_t>(n) * size_of(options_.dtype));
  host.low.resize(low_dtype ? static_cast<std::size_t>(n) * size_of(*low_dtype) : 0);
  const View values{host.values.data(), DType::f32, {n}}, param{host.param.data(), options_.dtype, {n}};
  const View low = low_dtype ? View{host.low.data(), *low_dtype, {n}} : View{};
  dispatch(host_stream(), [&](auto& s) { low ? write_master(s, values, {param, low}) : copy(s, values, param); });
  host_stream().synchronize();

  const auto to_device = [&](const View& from, const View& to) {
    launch([&](auto& s) { copy_to_device(s, from.data, to.data, from.bytes()); });
    Device::current().compute.synchronize();
  };
  const auto to_slot = [&](const View& from, std::size_t at) {
    std::memcpy(slots_->use(0) + at, from.data, from.bytes());
  };
  // In whole pages: the slot is zero beyond what is put there.
  const auto write = [&](const Block& block, std::size_t offset, std::size_t bytes) {
    Completion done = slots_->write(0, {&block, offset, bytes, 0, about("first weights", u)});
    done.wait();
    slots_->drain();
  };
  if (state.params_place == Place::device) {
    to_device(param, state.params.of(chunk).view());
  } else if (state.params_place == Place::host) {
    std::memcpy(state.params_block.data() + params_offset(state, chunk), param.data, param.bytes());
  } else {
    std::memset(slots_->use(0), 0, StateSlots::whole_pages(param.bytes()));
    to_slot(param, 0);
    write(state.params_block, params_offset(state, chunk), param.bytes());
  }
  const StatePiece* piece = piece_of(state, chunk);
  if (!piece) return;
  const std::int64_t begin = chunk.begin - piece->extent.begin;
  const auto keep = [&](std::byte* memory, const auto& move) {
    const StateViews states = piece->layout.views(memory, piece->extent.elements()).part(begin, n);
    if (low) move(low, states.low);
    if (piece->layout.holds_param) move(param, states.param);
  };
  const auto copy_on_host = [](const View& from, const View& to) { std::memcpy(to.data, from.data, from.bytes()); };
  if (piece->place == Place::device) {
    keep(static_cast<std::byte*>(piece->device.view().data), to_device);
  } else if (piece->place == Place::host) {
    std::memset(piece->block.data(), 0, piece->block.bytes());
    keep(piece->block.data(), copy_on_host);
  } else {
    std::memset(slots_->use(0), 0, StateSlots::whole_pages(piece->block.bytes()));
    keep(slots_->use(0), copy_on_host);
    write(piece->block, 0, piece->block.bytes());
  }
}

// The piece that has the state of these elements, which lie in one; null where the unit is not trained.
const StatePiece* Engine::piece_of(const UnitState& state, const Extent& range) const {
  for (const auto& piece : state.pieces)
    if (piece.extent.begin <= range.begin && range.end <= piece.extent.end) return &piece;
  return nullptr;
}

std::vector<WeightSlice> Engine::slices() const {
  std::vector<WeightSlice> result;
  for (const auto& [name, slice_place] : slices_) result.push_back(slice_place.slice);
  return result;
}

void Engine::read(const std::string& name, std::int64_t begin, std::span<float> out) {
  const auto found = slices_.find(name);
  if (found == slices_.end()) throw Error("engine: no weight is named {}", name);
  const UnitPlace& place = found->second.place;
  settle();
  UnitState& state = states_[place.unit];
  const std::int64_t first = place.offset + begin, last = first + static_cast<std::int64_t>(out.size());
  for (int rank = 0; rank < collectives_.size(); ++rank) {
    const std::int64_t shard = state.own.elements();
    const Extent wanted = common({first, last}, {rank * shard, (rank + 1) * shard});
    in_pieces(wanted, rank * shard, std::gcd(kPiece, options_.piece_elements), [&](const Extent& piece) {
      const Tensor fp32({piece.elements()}, DType::f32, Kind::working);
      if (rank == collectives_.rank() && !Device::current().compute.dry()) read_exact(place.unit, piece, fp32);
      collectives_.broadcast(fp32.view(), rank, label("weights", place.unit));
      std::ranges::copy(fp32.to_floats(), out.begin() + (piece.begin - first));
    });
  }
}

// Exact values of this rank's own elements, which lie in one piece.
void Engine::read_exact(std::size_t u, const Extent& range, const Tensor& fp32) {
  const UnitState& state = states_[u];
  const StatePiece* piece = piece_of(state, range);
  const auto convert = [](Stream& stream, const Weights& from, const View& to) {
    dispatch(stream, [&](auto& s) { from.low ? read_master(s, from, to) : copy(s, from.param, to); });
  };
  const bool weights_on_device =
      piece && piece->layout.holds_param ? piece->place == Place::device : state.params_place == Place::device;
  if (weights_on_device) {
    Weights from;
    if (piece) {
      const PieceMemory memory = on_device(state, *piece);
      const std::int64_t begin = range.begin - piece->extent.begin;
      from = {part_of(memory.param, begin, range.elements()), part_of(memory.states.low, begin, range.elements())};
    } else {
      from = {state.params.of(range).view(), {}};
    }
    return convert(Device::current().compute, from, fp32.view());
  }

  // On the host: what is in files comes into a slot, the weights behind the state.
  const Extent chunk = piece
                           ? piece->extent
                           : Extent{range.begin - (range.begin - state.own.begin) % options_.piece_elements, range.end};
  const std::int64_t begin = range.begin - chunk.begin;
  std::size_t slot_end = 0;
  StateViews states;
  if (piece) {
    std::byte* memory = piece->block.data();
    if (piece->place == Place::nvme) {
      memory = read_into_slot(piece->block, 0, piece->block.bytes(), 0);
      slot_end = StateSlots::whole_pages(piece->block.bytes());
    }
    states = piece->layout.views(memory, piece->extent.elements());
  }
  View param = states.param;
  if (!piece || !piece->layout.holds_param) {
    const std::size_t bytes = static_cast<std::size_t>(chunk.elements()) * size_of(options_.dtype);
    std::byte* memory = state.params_place == Place::nvme
                            ? read_into_slot(state.params_block, params_offset(state, chunk), bytes, slot_end)
                            : state.params_block.data() + params_offset(state, chunk);
    param = {memory, options_.dtype, {chunk.elements()}};
  }
  std::vector<float> values(static_cast<std::size_t>(range.elements()));
  convert(host_stream(), {part_of(param, begin, range.elements()), part_of(states.low, begin, range.elements())},
          {values.data(), DType::f32, {range.elements()}});
  host_stream().synchronize();
  launch([&](auto& s) { copy_to_device(s, values.data(), fp32.view().data, fp32.view().bytes()); });
  Device::current().compute.synchronize();
}

// Slot 0 keeps what was last read, so that small weights side by side are read once.
std::byte* Engine::read_into_slot(const Block& block, std::size_t offset, std::size_t bytes, std::size_t slot_offset) {
  const SlotContent wanted{&block, offset, bytes, slot_offset};
  if (read_slots_ != used_slots_) empty_slots();
  if (std::ranges::find(slot_content_, wanted) == slot_content_.end()) {
    std::erase_if(slot_content_, [&](const SlotContent& held) {
      return held.at < slot_offset + StateSlots::whole_pages(bytes) &&
             slot_offset < held.at + StateSlots::whole_pages(held.bytes);
    });
    Completion done = lower_->read(block, offset, slots_->use(0) + slot_offset, bytes, {"weights"});
    done.wait();
    slot_content_.push_back(wanted);
  }
  return slots_->use(0) + slot_offset;
}

std::string Engine::weights_hash() {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  std::vector<float> values;
  for (const auto& [name, slice_place] : slices_) {
    XXH3_128bits_update(hash.get(), name.data(), name.size());
    in_pieces({0, slice_place.slice.shape.elements()}, 0, kPiece, [&, &name = name](const Extent& piece) {
      values.resize(static_cast<std::size_t>(piece.elements()));
      read(name, piece.begin, values);
      XXH3_128bits_update(hash.get(), values.data(), values.size() * sizeof(float));
    });
  }
  const auto digest = XXH3_128bits_digest(hash.get());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace zeepo
