// The engine's weights in and out, slice by slice and piece by piece: no rank ever holds a copy of the model for it.
#include <xxhash.h>

#include <algorithm>
#include <memory>

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/engine.h"

namespace zeepo {
namespace {

constexpr std::int64_t kPiece = 1 << 20;  // elements

template <class F>
void in_pieces(const Extent& extent, F&& f) {
  for (std::int64_t begin = extent.begin; begin < extent.end; begin += kPiece)
    f(Extent{begin, std::min(extent.end, begin + kPiece)});
}

}  // namespace

std::vector<float> Engine::piece_buffer() const {
  std::int64_t largest = 0;
  for (const auto& [name, slice_place] : slices_) largest = std::max(largest, slice_place.slice.shape.elements());
  return std::vector<float>(static_cast<std::size_t>(std::min(largest, kPiece)));
}

void Engine::load(const WeightSource& source) {
  settle();
  hold({});  // what was gathered ahead of the next pass would be of the old weights
  std::vector<float> values = piece_buffer();
  for (const auto& [name, slice_place] : slices_) {
    const WeightSlice& slice = slice_place.slice;
    const Place& place = slice_place.place;
    UnitState& state = states_[place.unit];
    in_pieces(common({place.offset, place.offset + slice.shape.elements()}, state.own), [&](const Extent& piece) {
      const auto out = std::span(values).first(static_cast<std::size_t>(piece.elements()));
      if (!Device::current().compute.dry()) source(slice, piece.begin - place.offset, out);
      const auto fp32 = Tensor::from<float>(out, {piece.elements()}, Kind::working);
      const Weights to = {state.params.of(piece).view(), state.low.defined() ? state.low.of(piece).view() : View{}};
      launch([&](auto& s) { to.low ? write_master(s, fp32.view(), to) : copy(s, fp32.view(), to.param); });
    });
  }
  for (std::size_t u = 0; u < states_.size(); ++u) {
    UnitState& state = states_[u];
    for (const FlatPart* part : {&state.params, &state.low}) {
      if (!part->defined() || part->extent != state.whole || collectives_.alone()) continue;
      Completion done =
          collectives_.all_gather(part->of(state.own).view(), part->tensor.view(), label("first weights", u));
      collectives_.wait(done);
    }
  }
}

std::vector<WeightSlice> Engine::slices() const {
  std::vector<WeightSlice> result;
  for (const auto& [name, slice_place] : slices_) result.push_back(slice_place.slice);
  return result;
}

void Engine::read(const std::string& name, std::int64_t begin, std::span<float> out) {
  const auto found = slices_.find(name);
  if (found == slices_.end()) throw Error("engine: no weight is named {}", name);
  const Place& place = found->second.place;
  UnitState& state = states_[place.unit];
  collectives_.wait(state.gathering);
  const std::int64_t first = place.offset + begin, last = first + static_cast<std::int64_t>(out.size());
  for (int rank = 0; rank < collectives_.size(); ++rank) {
    const std::int64_t shard = state.own.elements();
    in_pieces(common({first, last}, {rank * shard, (rank + 1) * shard}), [&](const Extent& piece) {
      const Tensor fp32({piece.elements()}, DType::f32, Kind::working);
      if (rank == collectives_.rank()) {
        const Weights from = state.weights(piece);
        launch([&](auto& s) { from.low ? read_master(s, from, fp32.view()) : copy(s, from.param, fp32.view()); });
      }
      collectives_.broadcast(fp32.view(), rank, label("weights", place.unit));
      std::ranges::copy(fp32.to_floats(), out.begin() + (piece.begin - first));
    });
  }
}

std::string Engine::weights_hash() {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  std::vector<float> values = piece_buffer();
  for (const auto& [name, slice_place] : slices_) {
    XXH3_128bits_update(hash.get(), name.data(), name.size());
    in_pieces({0, slice_place.slice.shape.elements()}, [&, &name = name](const Extent& piece) {
      const auto out = std::span(values).first(static_cast<std::size_t>(piece.elements()));
      read(name, piece.begin, out);
      XXH3_128bits_update(hash.get(), out.data(), out.size_bytes());
    });
  }
  const auto digest = XXH3_128bits_digest(hash.get());
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

}  // namespace zeepo
