#include "zeepo/model/config_parsers.h"

namespace zeepo {
namespace {

// GPT2Config answers to both names, and the general one wins where a file has both.
std::int64_t size_by_either(const ConfigFields& fields, const char* own, const char* general, std::int64_t absent,
                            std::int64_t limit) {
  return fields.size(general, fields.size(own, absent, limit), limit);
}

Activation parse_activation(const ConfigFields& fields) {
  const char* key = "activation_function";
  const std::string name = fields.text(key, "gelu_new");
  for (const char* tanh_form : {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"})
    if (name == tanh_form) return Activation::gelu_tanh;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu_erf;
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "relu") return Activation::relu;
  fields.refuse(key, "not supported, must be gelu_new, gelu_pytorch_tanh, gelu, silu or relu");
}

}  // namespace

void parse_gpt2(const ConfigFields& fields, ModelConfig& config) {
  config.vocab = fields.size("vocab_size", 50257, kMaxVocab);
  config.max_positions = size_by_either(fields, "n_positions", "max_position_embeddings", 1024, kMaxPositions);
  config.hidden = size_by_either(fields, "n_embd", "hidden_size", 768, kMaxWidth);
  config.layers = size_by_either(fields, "n_layer", "num_hidden_layers", 12, kMaxLayers);
  config.heads = size_by_either(fields, "n_head", "num_attention_heads", 12, kMaxWidth);
  config.intermediate = fields.optional_size("n_inner", kMaxWidth).value_or(4 * config.hidden);
  if (config.hidden % config.heads != 0)
    fields.fail("n_embd", "{}: must be a multiple of n_head, {}", config.hidden, config.heads);
  config.kv_heads = config.heads;
  config.head_dim = config.hidden / config.heads;
  config.norm_eps = parse_fraction(fields, "layer_norm_epsilon", 1e-5);
  config.activation = parse_activation(fields);
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.tied_head = fields.flag("tie_word_embeddings", true);
  config.windows.assign(static_cast<std::size_t>(config.layers), 0);
  config.scale_attention = fields.flag("scale_attn_weights", true);
  config.scale_by_layer = fields.flag("scale_attn_by_inverse_layer_idx", false);
  config.embed_dropout = parse_dropout(fields, "embd_pdrop", 0.1);
  config.residual_dropout = parse_dropout(fields, "resid_pdrop", 0.1);
  config.attention_dropout = parse_dropout(fields, "attn_pdrop", 0.1);
  config.init_range = parse_fraction(fields, "initializer_range", 0.02);
  config.eos = parse_eos(fields).value_or(fields.is_null("eos_token_id") ? std::vector<std::int32_t>{}
                                                                         : std::vector<std::int32_t>{50256});
  if (fields.flag("add_cross_attention", false))
    fields.refuse("add_cross_attention", "cross attention is not supported, must be false");
}

}  // namespace zeepo
