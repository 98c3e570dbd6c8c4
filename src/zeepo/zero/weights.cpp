// The engine's weights in and out, piece by piece: no rank ever holds a copy of the model for it.
#include <xxhash.h>

#include <algorithm>
#include <array>
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

// Bytes between the host and the current device, there when the call returns.
void to_device(const void* from, const View& to) {
  launch([&](auto& s) { copy_to_device(s, from, to.data, to.bytes()); });
  Device::current().compute.synchronize();
}
void to_host(const View& from, void* to) {
  launch([&](auto& s) { copy_to_host(s, from.data, to, from.bytes()); });
  Device::current().compute.synchronize();
}

}  // namespace

// A chunk of weights in host memory: as they were read, and as they are kept.
struct Engine::HostWeights {
  std::vector<float> values;
  std::vector<std::byte> param, low;
};

void Engine::load(const WeightSource& source) {
  if (micro_steps_ > 0)
    throw Error("engine: load() after {} of {} micro-steps: their gradients are of other weights; step() first",
                micro_steps_, options_.accumulation);
  settle();
  hold({});  // what was gathered ahead of the next pass would be of the old weights
  drop_cache();
  forget_read_ahead();
  buffered_ = {};
  steps_ = 0;
  if (!Device::current().compute.dry()) {
    HostWeights host;
    for (auto& state : states_)
      for (auto& piece : state.pieces)
        if (piece.device.defined()) launch([&](auto& s) { fill(s, piece.device.view(), 0); });
    for (std::size_t u = 0; u < states_.size(); ++u) load_unit(u, source, host);
  }
  read_ahead();  // for the first step, under its own pass
  if (collectives_.alone()) return;
  for (std::size_t u = 0; u < states_.size(); ++u) {
    UnitState& state = states_[u];
    const auto gather = [&](ConstView own, View all) {
      Collecting done = collectives_.all_gather(own, all, label("first weights", u));
      collectives_.wait(done);
    };
    if (state.params_whole) gather(state.params.of(state.own).view(), state.params.tensor.view());
    if (!state.trained || state.stepped != state.whole) continue;
    const View low = on_device(state, state.pieces[0]).states.low;
    if (state.pieces[0].layout.low()) gather(part_of(low, state.own.begin, state.own.elements()), low);
  }
}

// The unit's own shard, in chunks that files can take.
void Engine::load_unit(std::size_t u, const WeightSource& source, HostWeights& host) {
  const UnitState& state = states_[u];
  in_pieces(state.own, state.own.begin, options_.piece_elements, [&](const Extent& chunk) {
    host.values.resize(static_cast<std::size_t>(chunk.elements()));
    dispatch(host_stream(), [&](auto& s) { fill(s, View{host.values.data(), DType::f32, {chunk.elements()}}, 0.0f); });
    host_stream().synchronize();
    for (const auto& own : places_.in_unit(u)) {
      const auto& [begin, elements, place] = own.place;
      const std::int64_t first = begin - place.offset;  // of the weight, where the unit begins
      in_pieces(common({place.offset, place.offset + elements}, chunk), 0, kPiece, [&](const Extent& part) {
        const auto out =
            std::span(host.values)
                .subspan(static_cast<std::size_t>(part.begin - chunk.begin), static_cast<std::size_t>(part.elements()));
        source(own.slice, first + part.begin, out);
      });
    }
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

  // In whole pages: the buffer is zero beyond what is put there.
  std::byte* buffer = weight_buffers_[0].data();
  const auto write = [&](const Block& block, std::size_t offset, std::size_t bytes) {
    Completion done = lower_->write(buffer, block, offset, bytes, about("first weights", u));
    done.wait();
  };
  if (state.params_place == Place::device) {
    to_device(param.data, state.params.of(chunk).view());
  } else if (state.params_place == Place::host) {
    std::memcpy(state.params_block.data() + params_offset(state, chunk), param.data, param.bytes());
  } else {
    std::memset(buffer, 0, StateSlots::whole_pages(param.bytes()));
    std::memcpy(buffer, param.data, param.bytes());
    write(state.params_block, params_offset(state, chunk), param.bytes());
  }
  const StatePiece* piece = piece_of(state, chunk);
  if (!piece) return;
  const std::int64_t begin = chunk.begin - piece->extent.begin;
  const auto keep = [&](std::byte* memory, const auto& move) {
    const StateViews states = piece->layout.views(memory, piece->extent.elements()).part(begin, n);
    if (low) move(low.data, states.low);
    if (piece->layout.holds_param) move(param.data, states.param);
  };
  const auto clear_on_host = [&](std::byte* memory, std::size_t bytes) {  // on all cores
    const auto words = static_cast<std::int64_t>(bytes / sizeof(float));
    dispatch(host_stream(), [&](auto& s) { fill(s, View{memory, DType::f32, {words}}, 0.0f); });
    std::memset(memory + bytes / sizeof(float) * sizeof(float), 0, bytes % sizeof(float));
    host_stream().synchronize();
  };
  const auto copy_on_host = [](const void* from, const View& to) { std::memcpy(to.data, from, to.bytes()); };
  if (piece->place == Place::device) {
    keep(static_cast<std::byte*>(piece->device.view().data), to_device);
  } else if (piece->place == Place::host) {
    clear_on_host(piece->block.data(), piece->block.bytes());
    keep(piece->block.data(), copy_on_host);
  } else {
    clear_on_host(buffer, StateSlots::whole_pages(piece->block.bytes()));
    keep(buffer, copy_on_host);
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
  for (const auto& [name, weight] : places_.by_name()) result.push_back(weight.slice);
  return result;
}

void Engine::read(const std::string& name, std::int64_t begin, std::span<float> out) {
  const PlacedWeight& weight = places_.of(name);
  settle();
  const Extent wanted{begin, begin + static_cast<std::int64_t>(out.size())};
  for (const auto& [first, elements, place] : weight.places) {
    const Extent part = common({first, first + elements}, wanted);
    if (part.empty()) continue;
    read_part({place.unit, place.offset + part.begin - first},
              out.subspan(static_cast<std::size_t>(part.begin - begin), static_cast<std::size_t>(part.elements())));
  }
}

void Engine::take_room_to_read() {
  settle();
  std::int64_t longest = 0;
  for (const auto& [name, weight] : places_.by_name())
    for (const auto& place : weight.places) longest = std::max(longest, place.elements);
  const Tensor room({std::min(longest, read_piece_elements())}, DType::f32, Kind::working);
}

// What is read at once lies in one piece of the optimizer's state.
std::int64_t Engine::read_piece_elements() const { return std::gcd(kPiece, options_.piece_elements); }

void Engine::read_part(const UnitPlace& place, std::span<float> out) {
  UnitState& state = states_[place.unit];
  const std::int64_t first = place.offset, last = first + static_cast<std::int64_t>(out.size());
  for (int rank = 0; rank < collectives_.size(); ++rank) {
    const std::int64_t shard = state.own.elements();
    const Extent wanted = common({first, last}, {rank * shard, (rank + 1) * shard});
    in_pieces(wanted, rank * shard, read_piece_elements(), [&](const Extent& piece) {
      const auto values =
          out.subspan(static_cast<std::size_t>(piece.begin - first), static_cast<std::size_t>(piece.elements()));
      const Tensor fp32({piece.elements()}, DType::f32, Kind::working);
      if (rank == collectives_.rank() && !Device::current().compute.dry()) read_exact(place.unit, piece, fp32, values);
      if (collectives_.alone()) return;
      if (rank == collectives_.rank()) to_device(values.data(), fp32.view());
      collectives_.broadcast(fp32.view(), rank, label("weights", place.unit));
      to_host(fp32.view(), values.data());
      collectives_.check();
    });
  }
}

// Exact values of this rank's own elements, which lie in one piece. What is not on the device is put together on the
// host, what is in files comes into a buffer first; `fp32` is room on the device.
void Engine::read_exact(std::size_t u, const Extent& range, const Tensor& fp32, std::span<float> out) {
  const UnitState& state = states_[u];
  const StatePiece* piece = piece_of(state, range);
  const std::int64_t n = range.elements();
  const auto convert = [](Stream& stream, const Weights& from, const View& to) {
    dispatch(stream, [&](auto& s) { from.low ? read_master(s, from, to) : copy(s, from.param, to); });
  };
  const bool holds_param = piece && piece->layout.holds_param;
  const bool state_on_device = !piece || piece->place == Place::device;
  const bool param_on_device = holds_param ? state_on_device : state.params_place == Place::device;
  if (state_on_device && param_on_device) {
    Weights weights;
    if (piece) {
      const PieceMemory memory = on_device(state, *piece);
      const std::int64_t begin = range.begin - piece->extent.begin;
      weights = {part_of(memory.param, begin, n), part_of(memory.states.low, begin, n)};
    } else {
      weights.param = state.params.of(range).view();
    }
    convert(Device::current().compute, weights, fp32.view());
    return to_host(fp32.view(), out.data());
  }

  const auto on_host = [&](const View& view) {  // of device memory
    host_copy_.resize(view.bytes());
    to_host(view, host_copy_.data());
    return View{host_copy_.data(), view.dtype, view.shape};
  };
  StateViews states;
  if (piece) {
    std::byte* memory = piece->place == Place::device ? static_cast<std::byte*>(piece->device.view().data)
                        : piece->place == Place::host ? piece->block.data()
                                                      : buffered(0, piece->block, 0, piece->block.bytes());
    states = piece->layout.views(memory, piece->extent.elements()).part(range.begin - piece->extent.begin, n);
    if (state_on_device && states.low) states.low = on_host(states.low);
  }
  View param = states.param;
  if (!holds_param && param_on_device) {
    param = on_host(state.params.of(range).view());
  } else if (!holds_param) {
    const std::int64_t begin = range.begin - (range.begin - state.own.begin) % options_.piece_elements;
    const Extent chunk{begin, std::min(begin + options_.piece_elements, state.own.end)};
    const std::size_t offset = params_offset(state, range);
    param = {state.params_place == Place::host
                 ? state.params_block.data() + offset
                 : buffered(1, state.params_block, params_offset(state, chunk),
                            static_cast<std::size_t>(chunk.elements()) * size_of(options_.dtype)) +
                       (offset - params_offset(state, chunk)),
             options_.dtype,
             {n}};
  }
  convert(host_stream(), {param, states.low}, {out.data(), DType::f32, {n}});
  host_stream().synchronize();
}

// A part of a block in files in one of the buffers. What was last read stays: small weights side by side are read once.
std::byte* Engine::buffered(std::size_t buffer, const Block& block, std::size_t offset, std::size_t bytes) {
  const Buffered wanted{&block, offset, bytes};
  if (buffered_[buffer] != wanted) {
    Completion done = lower_->read(block, offset, weight_buffers_[buffer].data(), bytes, {"weights"});
    done.wait();
    buffered_[buffer] = wanted;
  }
  return weight_buffers_[buffer].data();
}

std::string Engine::weights_hash() {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  // One piece is hashed while the next is read.
  std::array<std::vector<float>, 2> pieces;
  std::array<Completion, 2> hashed;
  std::size_t turn = 0;
  Worker worker;
  for (const auto& entry : places_.by_name()) {
    const std::string& name = entry.first;
    hashed[1 - turn].wait();
    XXH3_128bits_update(hash.get(), name.data(), name.size());
    in_pieces({0, entry.second.slice.shape.elements()}, 0, kPiece, [&](const Extent& piece) {
      auto& values = pieces[turn];
      hashed[turn].wait();
      values.resize(static_cast<std::size_t>(piece.elements()));
      read(name, piece.begin, values);
      hashed[turn] = worker.run(
          [&hash, &values] { XXH3_128bits_update(hash.get(), values.data(), values.size() * sizeof(float)); });
      turn = 1 - turn;
    });
  }
  hashed[1 - turn].wait();
  const auto digest = XXH3_128bits_digest(hash.get());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace zeepo
