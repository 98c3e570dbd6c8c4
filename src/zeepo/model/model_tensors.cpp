#include "zeepo/model/model_tensors.h"

#include "zeepo/model/language_model.h"

namespace zeepo {

std::vector<ModelTensor> model_tensors(const ModelConfig& config) {
  std::vector<ModelTensor> tensors;
  const auto model = make_model(config);
  for (const auto& [prefix, parameter] : named_parameters(*model))
    for (const auto& slice : parameter->slices()) {
      ModelTensor tensor{prefix + slice.name, {}};
      for (int i = 0; i < slice.shape.rank(); ++i) tensor.shape.push_back(slice.shape[i]);
      tensors.push_back(std::move(tensor));
    }
  return tensors;
}

}  // namespace zeepo
