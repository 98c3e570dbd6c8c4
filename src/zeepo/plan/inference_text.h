// Plans of inference for people, in tables of at most 80 columns, and for programs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "zeepo/plan/inference_choice.h"

namespace zeepo {

// The question in a line.
std::string about_text(const InferenceQuestion& question);
std::string inference_text(const InferenceQuestion& question, const std::vector<InferenceChoice>& choices);
// {"params":..,"batch":..,..,"kv_bytes":..,"recommended":{..},"choices":[{"ranks":..,"weights_dtype":"int8",..}]}
nlohmann::ordered_json inference_json(const InferenceQuestion& question, const std::vector<InferenceChoice>& choices);

}  // namespace zeepo
