#include "zeepo/model/gpt2.h"

#include <cmath>
#include <numeric>

#include "zeepo/base/error.h"
#include "zeepo/device/copy.h"
#include "zeepo/nn/layers.h"
#include "zeepo/ops/add.h"
#include "zeepo/ops/dropout.h"
#include "zeepo/ops/norm.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

Linear::Options conv1d(float init_deviation) {
  return {.layout = WeightLayout::in_out, .init_deviation = init_deviation};
}

// The same positions for every row.   (B, T)
Tensor positions_like(const Tensor& ids, const Past& past) {
  const std::int64_t time = ids.shape()[1];
  Tensor result(ids.shape(), DType::i32);
  launch([&](auto& s) {  // a dry pass has no memory for them, on the host either
    const std::vector<std::int32_t> row = past.positions(time);
    std::vector<std::int32_t> positions;
    for (std::int64_t b = 0; b < ids.shape()[0]; ++b) positions.insert(positions.end(), row.begin(), row.end());
    upload(s, positions.data(), result.view().data, result.view().bytes());
  });
  return result;
}

}  // namespace

class Gpt2::Embeddings final : public Module {
 public:
  explicit Embeddings(const ModelConfig& config)
      : tokens_(child<Embedding>("wte", config.vocab, config.hidden, config.init_range)),
        positions_(child<Embedding>("wpe", config.max_positions, config.hidden, config.init_range)),
        dropout_(config.embed_dropout) {
    mark_unit();
  }
  Tensor run(const Tensor& ids, const Past& past) {
    return visit(ids, [this, past](const Tensor& input) {
      const Tensor positions = positions_like(input, past);
      return dropout(add(tokens_(input), positions_(positions)), dropout_);
    });
  }
  Parameter& weight() { return tokens_.weight(); }

 private:
  Embedding &tokens_, &positions_;
  float dropout_;
};

class Gpt2::Block final : public Module {
 public:
  Block(const ModelConfig& config, std::int64_t layer)
      : norm1_(child<LayerNorm>("ln_1", config.hidden, config.norm_eps)),
        qkv_(child<Linear>("attn.c_attn", config.hidden, 3 * config.hidden, conv1d(config.init_range))),
        output_(child<Linear>("attn.c_proj", config.hidden, config.hidden, conv1d(residual_deviation(config)))),
        norm2_(child<LayerNorm>("ln_2", config.hidden, config.norm_eps)),
        up_(child<Linear>("mlp.c_fc", config.hidden, config.intermediate, conv1d(config.init_range))),
        down_(child<Linear>("mlp.c_proj", config.intermediate, config.hidden, conv1d(residual_deviation(config)))),
        heads_{config.heads, config.heads, config.head_dim},
        attention_{.scale = config.attention_scale(layer), .dropout = config.attention_dropout},
        activation_(config.activation),
        dropout_(config.residual_dropout),
        layer_(static_cast<std::size_t>(layer)) {
    mark_unit();
    mark_checkpointable();
  }

  // x, y: (B, T, C)
  Tensor run(const Tensor& x, const Past& past) {
    return visit(x, [this, past](const Tensor& input) {
      const Tensor qkv = qkv_(norm1_(input));                             // (B, T, 3C)
      const Tensor mixed = past.attend(qkv, heads_, attention_, layer_);  // (B, T, C)
      const auto [sum, normalised] =
          add_layer_norm(input, dropout(output_(mixed), dropout_), norm2_.weight(), norm2_.bias(), norm2_.eps());
      return add(sum, dropout(down_.of_activated(up_(normalised), activation_), dropout_));
    });
  }

 private:
  // GPT-2 starts the projections that write to the residual stream smaller, by their number.
  static float residual_deviation(const ModelConfig& config) {
    return config.init_range / std::sqrt(2.0f * static_cast<float>(config.layers));
  }

  LayerNorm& norm1_;
  Linear &qkv_, &output_;
  LayerNorm& norm2_;
  Linear &up_, &down_;
  HeadLayout heads_;
  AttentionOptions attention_;
  Activation activation_;
  float dropout_;
  std::size_t layer_;
};

Gpt2::Gpt2(const ModelConfig& config) : LanguageModel(config) {
  embeddings_ = &child<Embeddings>("transformer", config);
  for (std::int64_t i = 0; i < config.layers; ++i)
    blocks_.push_back(&child<Block>("transformer.h." + std::to_string(i), config, i));
  set_head(child<Head>("", config, "transformer.ln_f", &embeddings_->weight()));
}

Tensor Gpt2::body(const Tensor& ids, const Past& past) {
  if (const std::int64_t longest = past.longest(ids.shape()[1]); longest > config().max_positions)
    throw Error("gpt2: {} positions, but the model has {}; use a shorter --seq-len or fewer new tokens", longest,
                config().max_positions);
  Tensor x = embeddings_->run(ids, past);  // (B, T, C)
  for (Block* block : blocks_) x = block->run(x, past);
  return x;
}

}  // namespace zeepo
