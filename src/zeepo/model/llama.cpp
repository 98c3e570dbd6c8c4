#include "zeepo/model/llama.h"

#include <cmath>

#include "zeepo/nn/layers.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"
#include "zeepo/ops/norm.h"

namespace zeepo {

class Llama::Embeddings final : public Module {
 public:
  explicit Embeddings(const ModelConfig& config)
      : tokens_(child<Embedding>("embed_tokens", config.vocab, config.hidden, config.init_range)) {
    mark_unit();
  }
  Tensor forward(const Tensor& ids) override { return tokens_(ids); }
  Parameter& weight() { return tokens_.weight(); }

 private:
  Embedding& tokens_;
};

class Llama::Block final : public Module {
 public:
  Block(const ModelConfig& config, std::int64_t layer)
      : input_norm_(child<RmsNorm>("input_layernorm", config.hidden, config.norm_eps)),
        qkv_(child<Linear>("self_attn", config.hidden,
                           std::vector<Linear::Part>{{"q_proj", config.heads * config.head_dim},
                                                     {"k_proj", config.kv_heads * config.head_dim},
                                                     {"v_proj", config.kv_heads * config.head_dim}},
                           options(config, config.qkv_bias))),
        output_(child<Linear>("self_attn.o_proj", config.heads * config.head_dim, config.hidden,
                              options(config, config.output_bias))),
        query_norm_(config.qk_norm ? &child<RmsNorm>("self_attn.q_norm", config.head_dim, config.norm_eps) : nullptr),
        key_norm_(config.qk_norm ? &child<RmsNorm>("self_attn.k_norm", config.head_dim, config.norm_eps) : nullptr),
        middle_norm_(child<RmsNorm>("post_attention_layernorm", config.hidden, config.norm_eps)),
        gate_up_(child<Linear>(
            "mlp", config.hidden,
            std::vector<Linear::Part>{{"gate_proj", config.intermediate}, {"up_proj", config.intermediate}},
            options(config, config.mlp_bias))),
        down_(child<Linear>("mlp.down_proj", config.intermediate, config.hidden, options(config, config.mlp_bias))),
        heads_{config.heads, config.kv_heads, config.head_dim},
        attention_{.scale = config.attention_scale(layer),
                   .window = config.windows[static_cast<std::size_t>(layer)],
                   .dropout = config.attention_dropout},
        layer_(static_cast<std::size_t>(layer)) {
    mark_unit();
    mark_checkpointable();
  }

  // x, y: (B, T, C)
  Tensor run(const Tensor& x, const Pass& pass) {
    return visit(x, [this, pass](const Tensor& input) {
      if (in_few_rows(input)) return few_rows(input, pass);
      Tensor qkv = qkv_(input_norm_(input));  // (B, T, (H + 2·Hkv)·D)
      if (query_norm_) qkv = qk_norm(qkv, heads_, query_norm_->weight(), key_norm_->weight(), query_norm_->eps());
      const Tensor mixed = pass.attend(qkv, heads_, attention_, layer_);  // (B, T, H·D)
      const auto [sum, normalised] = add_rms_norm(input, output_(mixed), middle_norm_.weight(), middle_norm_.eps());
      return add(sum, down_(swiglu(gate_up_(normalised))));
    });
  }

 private:
  // The same, with what stands around the products as a part of them.
  Tensor few_rows(const Tensor& input, const Pass& pass) {
    Tensor qkv = qkv_.with(input, {.norm = input_norm_.weight(), .eps = input_norm_.eps()});
    if (query_norm_) qkv = qk_norm(qkv, heads_, query_norm_->weight(), key_norm_->weight(), query_norm_->eps());
    const Tensor mixed = pass.attend(qkv, heads_, attention_, layer_);
    const Tensor sum = output_.with(mixed, {.sum = input});
    const Tensor gated = gate_up_.with(sum, {.norm = middle_norm_.weight(), .eps = middle_norm_.eps(), .swiglu = true});
    return down_.with(gated, {.sum = sum});
  }

  static Linear::Options options(const ModelConfig& config, bool bias) {
    return {.bias = bias ? Bias::yes : Bias::no, .init_deviation = config.init_range};
  }

  RmsNorm& input_norm_;
  Linear &qkv_, &output_;
  RmsNorm *query_norm_, *key_norm_;
  RmsNorm& middle_norm_;
  Linear &gate_up_, &down_;
  HeadLayout heads_;
  AttentionOptions attention_;
  std::size_t layer_;
};

Llama::Llama(const ModelConfig& config)
    : LanguageModel(config), frequencies_(inverse_frequencies(config.rope, config.head_dim)) {
  embeddings_ = &child<Embeddings>("model", config);
  for (std::int64_t i = 0; i < config.layers; ++i)
    blocks_.push_back(&child<Block>("model.layers." + std::to_string(i), config, i));
  set_head(child<Head>("", config, "model.norm", &embeddings_->weight()));
}

Pass Llama::start_pass(const Tensor& ids, const Past& past) {
  const auto half = static_cast<std::int64_t>(frequencies_.size());
  if (auto positions = past.positions(ids.shape()[1]); rotations_.positions != positions) {
    rotations_ = {std::move(positions), {}, {}};
    for (const std::int32_t position : rotations_.positions)
      for (const float frequency : frequencies_) {
        const float angle = static_cast<float>(position) * frequency;  // in fp32, as transformers does
        rotations_.cosines.push_back(std::cos(angle));
        rotations_.sines.push_back(std::sin(angle));
      }
  }
  const auto count = static_cast<std::int64_t>(rotations_.positions.size());
  return {Tensor::from<float>(rotations_.cosines, {count, half}), Tensor::from<float>(rotations_.sines, {count, half}),
          past};
}

Tensor Llama::body(const Tensor& ids, const Past& past) {
  const Pass pass = start_pass(ids, past);
  Tensor x = (*embeddings_)(ids);  // (B, T, C)
  for (Block* block : blocks_) x = block->run(x, pass);
  return x;
}

}  // namespace zeepo
