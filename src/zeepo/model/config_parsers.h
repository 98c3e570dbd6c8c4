// The steps of parse_config, one for each family of models. Only for the sources that share this name.
#pragma once

#include "zeepo/model/config.h"
#include "zeepo/model/config_fields.h"

namespace zeepo {

// More than any model has, and so few that the product of any two fits 63 bits; check_sizes bounds the whole.
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 20;  // hidden, intermediate, heads, head_dim
// Known models have hundreds. Each layer is planned for, before any budget can refuse it: a wrong config.json may cost
// the seconds and the half gigabyte that this many take (bench/RESULTS.md, many layers), not more.
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 13;
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 30;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;

void parse_gpt2(const ConfigFields& fields, ModelConfig& config);
// llama, qwen2, qwen3 and mistral. `json` is what `fields` reads.
void parse_llama_family(const ConfigFields& fields, const nlohmann::json& json, ModelConfig& config);

// eos_token_id: a number or a list of them; nothing where the key is absent or null.
std::optional<std::vector<std::int32_t>> parse_eos(const ConfigFields& fields);
float parse_dropout(const ConfigFields& fields, const char* key, double absent);
float parse_fraction(const ConfigFields& fields, const char* key, double absent);

}  // namespace zeepo
