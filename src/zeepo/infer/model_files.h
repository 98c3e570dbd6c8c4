// The model's own safetensors as the place of weights that live in files.
#pragma once

#include <memory>
#include <string>

#include "zeepo/model/config.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/zero/state_plan.h"
#include "zeepo/zero/weights_in_files.h"

namespace zeepo {

// The weights that the model's files have in this dtype. Throws Error where the files do not fit the model.
std::shared_ptr<const WeightsInFiles> weights_in_model_files(const ModelConfig& config, const WeightFiles& files,
                                                             DType dtype);

// What of this rank's weights is read from the model's own files, and what is copied to files of zeepo's first.
struct FilesInUse {
  std::int64_t in_place_bytes = 0, copied_bytes = 0;
  std::string why_copied;  // in words
};
FilesInUse files_in_use(const StatePlan& plan);

}  // namespace zeepo
