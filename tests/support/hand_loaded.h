// A model with memory given to its parameters by hand: no engine is needed to run one.
#pragma once

#include <memory>

#include "tests/support/test_device.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/language_model.h"
#include "zeepo/tensor/weight_source.h"

namespace zeepo {

inline std::vector<WeightSlice> slices_of(const Module& model) {
  std::vector<WeightSlice> slices;
  for (const auto& [prefix, parameter] : named_parameters(model))
    for (const auto& slice : parameter->slices())
      slices.push_back({prefix + slice.name, slice.shape, parameter->init()});
  return slices;
}

inline void load_by_hand(const Module& model, const WeightSource& source) {
  for (const auto& [prefix, parameter] : named_parameters(model)) {
    std::vector<float> values(static_cast<std::size_t>(parameter->elements()));
    std::size_t at = 0;
    for (const auto& slice : parameter->slices()) {
      const auto count = static_cast<std::size_t>(slice.elements);
      source({prefix + slice.name, slice.shape, parameter->init()}, slice.begin, std::span(values).subspan(at, count));
      at += count;
    }
    parameter->leaf().set_current(Tensor::from<float>(values, parameter->shape(), Kind::params));
  }
}

inline std::unique_ptr<LanguageModel> model_from(const std::filesystem::path& directory) {
  const ModelConfig config = load_config(directory);
  auto model = make_model(config);
  const WeightFiles files(directory);
  load_by_hand(*model, stored_weights(config, slices_of(*model), files));
  return model;
}

inline std::vector<float> logits_of(LanguageModel& model, const std::vector<std::int32_t>& ids) {
  return model.logits(int_tensor(ids, {1, static_cast<std::int64_t>(ids.size())})).to_floats();
}

}  // namespace zeepo
