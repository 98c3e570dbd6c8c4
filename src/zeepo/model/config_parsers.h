// The steps of parse_config, one for each family of models. Only for the sources that share this name.
#pragma once

#include "zeepo/model/config.h"
#include "zeepo/model/config_fields.h"
#include "zeepo/model/config_sizes.h"

namespace zeepo {

void parse_gpt2(const ConfigFields& fields, ModelConfig& config);
// llama, qwen2, qwen3 and mistral. `json` is what `fields` reads.
void parse_llama_family(const ConfigFields& fields, const nlohmann::json& json, ModelConfig& config);

// eos_token_id: a number or a list of them; nothing where the key is absent or null.
std::optional<std::vector<std::int32_t>> parse_eos(const ConfigFields& fields);
float parse_dropout(const ConfigFields& fields, const char* key, double absent);
float parse_fraction(const ConfigFields& fields, const char* key, double absent);

}  // namespace zeepo
