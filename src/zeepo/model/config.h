// What a Hugging Face config.json says of a model, in one set of names for every architecture.
//
// An absent key has the default that transformers gives it for that model_type. Anything that zeepo would compute
// differently from transformers is refused with an Error naming the key and the value, never ignored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/activation.h"
#include "zeepo/base/dtype.h"
#include "zeepo/model/rope_config.h"

namespace zeepo {

inline constexpr std::int64_t kMaxConfigBytes = std::int64_t{1} << 20;  // a larger config.json is refused

enum class Architecture { gpt2, llama, qwen2, qwen3, mistral };

std::string_view name_of(Architecture architecture);        // model_type: "gpt2"
std::string_view class_name_of(Architecture architecture);  // "GPT2LMHeadModel"

struct ModelConfig {
  Architecture architecture = Architecture::gpt2;
  std::int64_t vocab = 0, hidden = 0, intermediate = 0, layers = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;  // kv_heads divides heads; heads × head_dim need not be hidden
  std::int64_t max_positions = 0;
  float norm_eps = 1e-5f;
  Activation activation = Activation::silu;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;               // RMS norm over head_dim of each query and key, before the rotation
  bool tied_head = false;             // the head's weight is the embedding's
  RopeConfig rope;                    // not for gpt2, which has learned positions
  std::vector<std::int64_t> windows;  // a layer: how many keys a query sees, itself the last; 0 is all before it
  bool scale_attention = true;        // scores × head_dim^-1/2
  bool scale_by_layer = false;        // scores / (layer + 1)
  float embed_dropout = 0, residual_dropout = 0, attention_dropout = 0;  // in [0, 1)
  float init_range = 0.02f;                                              // deviation of the initial weights
  std::vector<std::int32_t> eos;  // tokens that end a text; may be empty, and may lie outside the vocabulary
  std::optional<DType> dtype;     // of the weights, where the file says one of ours

  // The factor on layer i's scores.
  float attention_scale(std::int64_t layer) const;
};

// `what` names the file in errors.
ModelConfig parse_config(std::string_view json, const std::string& what = "config.json");
// eos_token_id of a generation_config.json; nothing where it does not say.
std::optional<std::vector<std::int32_t>> parse_generation_eos(std::string_view json, const std::string& what);

// config.json of a directory, with the end tokens of generation_config.json where there is one.
ModelConfig load_config(const std::filesystem::path& directory);

}  // namespace zeepo
