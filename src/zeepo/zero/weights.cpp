// The engine's weights in and out, slice by slice and piece by piece: no copy of the model is ever made.
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
void in_pieces(std::int64_t elements, F&& f) {
  std::vector<float> piece(static_cast<std::size_t>(std::min(elements, kPiece)));
  for (std::int64_t begin = 0; begin < elements; begin += kPiece)
    f(begin, std::span(piece).first(static_cast<std::size_t>(std::min(kPiece, elements - begin))));
}

}  // namespace

Weights Engine::weights(const UnitState& state, std::int64_t begin, std::int64_t elements) const {
  return {state.params.part(begin, {elements}).view(),
          state.low.defined() ? state.low.part(begin, {elements}).view() : View{}};
}

void Engine::load(const WeightSource& source) {
  for (const auto& [name, slice_place] : slices_) {
    const auto& [slice, place] = slice_place;
    in_pieces(slice.shape.elements(), [&, &slice = slice, &place = place](std::int64_t begin, std::span<float> piece) {
      if (!Device::current().compute.dry()) source(slice, begin, piece);
      const auto n = static_cast<std::int64_t>(piece.size());
      const auto values = Tensor::from<float>(piece, {n}, Kind::working);
      const Weights to = weights(states_[place.unit], place.offset + begin, n);
      launch([&](auto& s) { to.low ? write_master(s, values.view(), to) : copy(s, values.view(), to.param); });
    });
  }
}

std::vector<WeightSlice> Engine::slices() const {
  std::vector<WeightSlice> result;
  for (const auto& [name, slice_place] : slices_) result.push_back(slice_place.slice);
  return result;
}

void Engine::read(const std::string& name, std::int64_t begin, std::span<float> out) const {
  const auto found = slices_.find(name);
  if (found == slices_.end()) throw Error("engine: no weight is named {}", name);
  const auto& place = found->second.place;
  const auto n = static_cast<std::int64_t>(out.size());
  const Tensor values({n}, DType::f32, Kind::working);
  const Weights from = weights(states_[place.unit], place.offset + begin, n);
  launch([&](auto& s) { from.low ? read_master(s, from, values.view()) : copy(s, from.param, values.view()); });
  std::ranges::copy(values.to_floats(), out.begin());
}

std::string Engine::weights_hash() const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (const auto& [name, slice_place] : slices_) {
    XXH3_128bits_update(state.get(), name.data(), name.size());
    in_pieces(slice_place.slice.shape.elements(), [&, &name = name](std::int64_t begin, std::span<float> piece) {
      read(name, begin, piece);
      XXH3_128bits_update(state.get(), piece.data(), piece.size_bytes());
    });
  }
  const auto hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace zeepo
