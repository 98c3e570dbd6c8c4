#include "zeepo/model/initial_weights.h"

#include <algorithm>

#include "zeepo/base/rng.h"
#include "zeepo/model/weight_names.h"

namespace zeepo {

WeightSource random_weights(std::uint64_t seed, ThreadPool* pool) {
  const RngKey run = mix(RngKey{seed}, "weights");
  return [run, pool](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
    const RngKey key = mix(run, slice.name);
    const Init& init = slice.init;
    const auto fill = [&](std::int64_t from, std::int64_t to) {
      const auto part = out.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from));
      const auto first = static_cast<std::uint64_t>(begin + from);
      switch (init.kind) {
        case Init::Kind::zeros: std::ranges::fill(part, 0.0f); break;
        case Init::Kind::ones: std::ranges::fill(part, 1.0f); break;
        case Init::Kind::normal:
          fill_normal(key, first, part);
          for (float& value : part) value *= init.scale;
          break;
        case Init::Kind::uniform:
          fill_uniform(key, first, part);
          for (float& value : part) value = init.scale * (2 * value - 1);
          break;
      }
    };
    const auto elements = static_cast<std::int64_t>(out.size());
    if (pool)
      pool->for_range(elements, 1 << 14, fill);
    else
      fill(0, elements);
  };
}

std::map<std::string, std::string> stored_names(const ModelConfig& config, const std::vector<WeightSlice>& slices,
                                                const WeightFiles& files) {
  std::vector<ExpectedWeight> expected;
  for (const auto& slice : slices) {
    std::vector<std::int64_t> shape;
    for (int i = 0; i < slice.shape.rank(); ++i) shape.push_back(slice.shape[i]);
    expected.push_back({slice.name, std::move(shape)});
  }
  return match_weights(config, expected, files);
}

WeightSource stored_weights(const ModelConfig& config, const std::vector<WeightSlice>& slices,
                            const WeightFiles& files) {
  return [&files, stored = stored_names(config, slices, files)](const WeightSlice& slice, std::int64_t begin,
                                                                std::span<float> out) {
    files.read(stored.at(slice.name), begin, out);
  };
}

}  // namespace zeepo
