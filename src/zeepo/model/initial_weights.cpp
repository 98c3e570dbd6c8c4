#include "zeepo/model/initial_weights.h"

#include <algorithm>

#include "zeepo/base/rng.h"
#include "zeepo/model/weight_names.h"

namespace zeepo {

WeightSource random_weights(std::uint64_t seed) {
  const RngKey run = mix(RngKey{seed}, "weights");
  return [run](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
    const RngKey key = mix(run, slice.name);
    const Init& init = slice.parameter->init();
    auto i = static_cast<std::uint64_t>(begin);
    switch (init.kind) {
      case Init::Kind::zeros: std::ranges::fill(out, 0.0f); break;
      case Init::Kind::ones: std::ranges::fill(out, 1.0f); break;
      case Init::Kind::normal:
        for (float& value : out) value = init.scale * normal(key, i++);
        break;
      case Init::Kind::uniform:
        for (float& value : out) value = init.scale * (2 * uniform(key, i++) - 1);
        break;
    }
  };
}

WeightSource stored_weights(const ModelConfig& config, const std::vector<WeightSlice>& slices,
                            const WeightFiles& files) {
  std::vector<ExpectedWeight> expected;
  for (const auto& slice : slices) {
    std::vector<std::int64_t> shape;
    for (int i = 0; i < slice.shape.rank(); ++i) shape.push_back(slice.shape[i]);
    expected.push_back({slice.name, std::move(shape)});
  }
  return [&files, stored = match_weights(config, expected, files)](const WeightSlice& slice, std::int64_t begin,
                                                                   std::span<float> out) {
    files.read(stored.at(slice.name), begin, out);
  };
}

}  // namespace zeepo
