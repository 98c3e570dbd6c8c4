#include "zeepo/model/config_parsers.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

// What transformers' configuration class of each model_type gives an absent key.
struct Defaults {
  std::int64_t vocab, intermediate, max_positions;
  std::int64_t kv_heads;  // 0: as many as heads
  std::int64_t head_dim;  // 0: hidden / heads
  std::vector<std::int32_t> eos;
};

Defaults defaults_of(Architecture architecture) {
  switch (architecture) {
    case Architecture::qwen2: return {151936, 22016, 32768, 32, 0, {}};
    case Architecture::qwen3: return {151936, 22016, 32768, 32, 128, {}};
    case Architecture::mistral: return {32000, 14336, 131072, 8, 0, {2}};
    default: return {32000, 11008, 2048, 0, 0, {2}};
  }
}

constexpr std::int64_t kDefaultWindow = 4096;

// Nothing where every layer sees everything.
std::optional<std::int64_t> parse_window(const ConfigFields& fields) {
  const char* key = "sliding_window";
  if (!fields.has(key)) return kDefaultWindow;
  return fields.optional_size(key, kMaxPositions);
}

std::vector<std::int64_t> windows_by_type(const ConfigFields& fields, const Json& types, std::int64_t layers,
                                          std::optional<std::int64_t> window) {
  const char* key = "layer_types";
  if (!types.is_array() || types.size() != static_cast<std::size_t>(layers))
    fields.refuse(key, fmt::format("must be a list with a string for each of the {} layers", layers));
  std::vector<std::int64_t> windows;
  for (const Json& type : types) {
    if (type == "full_attention" || type == "attention") {
      windows.push_back(0);
    } else if (type == "sliding_attention") {
      if (!window) fields.fail(key, "sliding_attention, but sliding_window is null or use_sliding_window is false");
      windows.push_back(*window);
    } else {
      fields.fail(key, "{}: not supported, must be full_attention or sliding_attention", shown_json(type));
    }
  }
  return windows;
}

std::vector<std::int64_t> parse_windows(const ConfigFields& fields, const ModelConfig& config) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(config.layers), 0);
  if (config.architecture == Architecture::llama) return windows;
  std::optional<std::int64_t> window = parse_window(fields);
  if (config.architecture == Architecture::mistral) {
    windows.assign(windows.size(), window.value_or(0));
    return windows;
  }
  if (!fields.flag("use_sliding_window", false)) window.reset();
  const std::int64_t first = fields.count("max_window_layers", 28);
  if (const Json* types = fields.find("layer_types")) return windows_by_type(fields, *types, config.layers, window);
  for (std::int64_t i = first; i < config.layers; ++i) windows[static_cast<std::size_t>(i)] = window.value_or(0);
  return windows;
}

void parse_heads(const ConfigFields& fields, const Defaults& defaults, ModelConfig& config) {
  config.heads = fields.size("num_attention_heads", 32, kMaxWidth);
  const char* kv_key = "num_key_value_heads";
  const std::int64_t absent = fields.has(kv_key) || defaults.kv_heads == 0 ? config.heads : defaults.kv_heads;
  config.kv_heads = fields.optional_size(kv_key, kMaxWidth).value_or(absent);
  if (config.heads % config.kv_heads != 0)
    fields.fail("num_attention_heads", "{}: must be a multiple of {}, {}", config.heads, kv_key, config.kv_heads);

  const char* dim_key = "head_dim";
  const auto head_dim = fields.optional_size(dim_key, kMaxWidth);
  if (!head_dim && defaults.head_dim == 0 && config.hidden % config.heads != 0)
    fields.fail("hidden_size", "{}: must be a multiple of num_attention_heads, {}, or {} be given", config.hidden,
                config.heads, dim_key);
  config.head_dim = head_dim.value_or(defaults.head_dim != 0 ? defaults.head_dim : config.hidden / config.heads);
  if (config.head_dim % 2 != 0) fields.fail(dim_key, "{}: must be even, as it is rotated in pairs", config.head_dim);
}

void parse_biases(const ConfigFields& fields, ModelConfig& config) {
  switch (config.architecture) {
    case Architecture::llama:
      config.qkv_bias = config.output_bias = fields.flag("attention_bias", false);
      config.mlp_bias = fields.flag("mlp_bias", false);
      break;
    case Architecture::qwen2: config.qkv_bias = true; break;
    case Architecture::qwen3:
      config.qkv_bias = config.output_bias = fields.flag("attention_bias", false);
      config.qk_norm = true;
      break;
    default: break;
  }
}

}  // namespace

void parse_llama_family(const ConfigFields& fields, const Json& json, ModelConfig& config) {
  const Defaults defaults = defaults_of(config.architecture);
  config.vocab = fields.size("vocab_size", defaults.vocab, kMaxVocab);
  config.hidden = fields.size("hidden_size", 4096, kMaxWidth);
  config.intermediate = fields.size("intermediate_size", defaults.intermediate, kMaxWidth);
  config.layers = fields.size("num_hidden_layers", 32, kMaxLayers);
  config.max_positions = fields.size("max_position_embeddings", defaults.max_positions, kMaxPositions);
  parse_heads(fields, defaults, config);
  parse_biases(fields, config);
  config.norm_eps = parse_fraction(fields, "rms_norm_eps", 1e-6);
  config.activation = Activation::silu;
  if (const std::string act = fields.text("hidden_act", "silu"); act != "silu" && act != "swish")
    fields.refuse("hidden_act", "not supported, must be silu");
  config.tied_head = fields.flag("tie_word_embeddings", false);
  config.rope = parse_rope(json, config.max_positions, fields.what());
  config.windows = parse_windows(fields, config);
  config.attention_dropout = parse_dropout(fields, "attention_dropout", 0.0);
  config.init_range = parse_fraction(fields, "initializer_range", 0.02);
  config.eos = parse_eos(fields).value_or(fields.is_null("eos_token_id") ? std::vector<std::int32_t>{} : defaults.eos);
}

}  // namespace zeepo
