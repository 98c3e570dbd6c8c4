#include "zeepo/model/config.h"

#include <array>
#include <cmath>
#include <limits>

#include "zeepo/base/file.h"
#include "zeepo/model/config_parsers.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

constexpr std::array kArchitectures{Architecture::gpt2, Architecture::llama, Architecture::qwen2, Architecture::qwen3,
                                    Architecture::mistral};

Architecture parse_architecture(const ConfigFields& fields) {
  const auto type = fields.optional_text("model_type");
  std::string known;
  for (const Architecture architecture : kArchitectures) {
    if (type == name_of(architecture)) return architecture;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(architecture));
  }
  fields.refuse("model_type", fmt::format("not a model that zeepo knows, which are {}", known));
}

void refuse_unsupported(const ConfigFields& fields) {
  if (fields.find("quantization_config") != nullptr)
    fields.refuse("quantization_config", "quantized weights are not supported, use the model's unquantized files");
  if (fields.find("per_layer_config") != nullptr)
    fields.refuse("per_layer_config", "layers that differ in size are not supported");
  if (fields.flag("is_encoder_decoder", false)) fields.refuse("is_encoder_decoder", "only decoders are supported");
  if (!fields.flag("is_causal", true)) fields.refuse("is_causal", "only causal attention is supported, must be true");
}

// `dtype`, or `torch_dtype` in an older file. Informative: each tensor says its own.
std::optional<DType> parse_stored_dtype(const ConfigFields& fields) {
  const auto old_spelling = fields.optional_text("torch_dtype");
  const auto text = fields.optional_text("dtype");
  const std::string name = text ? *text : old_spelling.value_or("");
  if (name == "float32" || name == "bfloat16" || name == "float16") return parse_dtype(name);
  return std::nullopt;
}

}  // namespace

std::string_view name_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::gpt2: return "gpt2";
    case Architecture::llama: return "llama";
    case Architecture::qwen2: return "qwen2";
    case Architecture::qwen3: return "qwen3";
    case Architecture::mistral: return "mistral";
  }
  return "?";
}

std::string_view class_name_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::gpt2: return "GPT2LMHeadModel";
    case Architecture::llama: return "LlamaForCausalLM";
    case Architecture::qwen2: return "Qwen2ForCausalLM";
    case Architecture::qwen3: return "Qwen3ForCausalLM";
    case Architecture::mistral: return "MistralForCausalLM";
  }
  return "?";
}

float ModelConfig::attention_scale(std::int64_t layer) const {
  double scale = scale_attention ? 1.0 / std::sqrt(static_cast<double>(head_dim)) : 1.0;
  if (scale_by_layer) scale /= static_cast<double>(layer + 1);
  return static_cast<float>(scale);
}

std::optional<std::vector<std::int32_t>> parse_eos(const ConfigFields& fields) {
  const char* key = "eos_token_id";
  const Json* value = fields.find(key);
  if (value == nullptr) return std::nullopt;
  std::vector<std::int32_t> tokens;
  for (const Json& token : value->is_array() ? *value : Json::array({*value})) {
    constexpr std::uint64_t limit = std::numeric_limits<std::int32_t>::max();
    if (!token.is_number_unsigned() || token.get<std::uint64_t>() > limit)
      fields.refuse(key, "must be a token or a list of tokens, whole numbers from 0 to 2^31 - 1");
    tokens.push_back(token.get<std::int32_t>());
  }
  return tokens;
}

float parse_dropout(const ConfigFields& fields, const char* key, double absent) {
  const double value = fields.optional_number(key).value_or(fields.is_null(key) ? 0.0 : absent);
  if (!(value >= 0 && value < 1)) fields.refuse(key, "must be at least 0 and below 1");
  return static_cast<float>(value);
}

float parse_fraction(const ConfigFields& fields, const char* key, double absent) {
  const double value = fields.number(key, absent);
  if (!(value >= 0 && value <= 1)) fields.refuse(key, "must be a number from 0 to 1");
  return static_cast<float>(value);
}

ModelConfig parse_config(std::string_view json, const std::string& what) {
  const Json object = parse_json_object(json, what);
  const ConfigFields fields(object, what);
  ModelConfig config;
  config.architecture = parse_architecture(fields);
  refuse_unsupported(fields);
  config.dtype = parse_stored_dtype(fields);
  if (config.architecture == Architecture::gpt2)
    parse_gpt2(fields, config);
  else
    parse_llama_family(fields, object, config);
  check(config, what,
        {"num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "max_position_embeddings"});
  return config;
}

std::optional<std::vector<std::int32_t>> parse_generation_eos(std::string_view json, const std::string& what) {
  const Json object = parse_json_object(json, what);
  return parse_eos(ConfigFields(object, what));
}

ModelConfig load_config(const std::filesystem::path& directory) {
  if (std::error_code ignored; !std::filesystem::is_directory(directory, ignored))
    throw Error("{}: {}; a model is a directory, as transformers saves it: config.json, safetensors, tokenizer.json",
                directory.string(), file_exists(directory) ? "is a file" : "there is no such directory");
  const std::filesystem::path path = directory / "config.json";
  ModelConfig config = parse_config(read_text(path, kMaxConfigBytes), path.string());
  const std::filesystem::path generation = directory / "generation_config.json";
  if (file_exists(generation))
    if (auto eos = parse_generation_eos(read_text(generation, kMaxConfigBytes), generation.string()))
      config.eos = std::move(*eos);
  return config;
}

}  // namespace zeepo
