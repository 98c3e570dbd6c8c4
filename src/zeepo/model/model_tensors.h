// The tensors of a model as files have them: from config.json alone.
#pragma once

#include <vector>

#include "zeepo/model/config.h"
#include "zeepo/model/weight_shards.h"

namespace zeepo {

// In the order of the model's modules. A tied head is not among them.
std::vector<ModelTensor> model_tensors(const ModelConfig& config);

}  // namespace zeepo
