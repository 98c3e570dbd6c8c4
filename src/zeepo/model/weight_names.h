// Which tensor of a model's files holds which weight of a model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "zeepo/model/config.h"
#include "zeepo/model/weight_files.h"

namespace zeepo {

struct ExpectedWeight {
  std::string name;  // as transformers saves it today
  std::vector<std::int64_t> shape;
};

// From each weight's name to that of the tensor in the files. Files of a bare body (the first GPT-2: no "transformer.")
// are understood; known buffers that are no weights (causal masks, inverse frequencies) and a stored copy of a tied
// head are passed over. A tensor that is missing, unknown or misshapen is an Error that names it.
std::map<std::string, std::string> match_weights(const ModelConfig& config, const std::vector<ExpectedWeight>& expected,
                                                 const WeightFiles& files);

}  // namespace zeepo
