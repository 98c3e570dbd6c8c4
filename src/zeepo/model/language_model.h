// A causal language model: token ids in, a loss or logits out. The same source runs resident, sharded, offloaded,
// trained or served; nothing here knows which.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "zeepo/model/config.h"
#include "zeepo/nn/module.h"
#include "zeepo/ops/attention.h"

namespace zeepo {

// Keys and values of all layers for the positions seen so far, so that generation computes each position once.
struct KvCache {
  std::vector<LayerCache> layers;

  KvCache(const ModelConfig& config, std::int64_t batch, std::int64_t capacity, DType dtype);
  std::int64_t length() const { return layers.front().length; }
};

// What the layers of one forward pass share. Copied into closures: cheap.
struct Pass {
  Tensor cosines, sines;  // of the pass's positions; undefined where the model has none
  KvCache* cache = nullptr;
};

class LanguageModel : public Module {
 public:
  explicit LanguageModel(ModelConfig config) : config_(std::move(config)) {}

  const ModelConfig& config() const { return config_; }
  // Mean cross entropy.   ids, targets: int32 (B, T). Negative targets and `divisor`: see head_cross_entropy.
  Tensor loss(const Tensor& ids, const Tensor& targets, std::optional<float> divisor = std::nullopt);
  // Logits of every position, or of the last one alone: (B, T, vocab) or (B, 1, vocab). With a cache, ids continue what
  // it holds, and join it.
  enum class Positions { all, last };
  Tensor logits(const Tensor& ids, KvCache* cache = nullptr, Positions positions = Positions::all);

 protected:
  // The final norm and the projection to the vocabulary, whose weight may be the embedding's.
  class Head : public Module {
   public:
    // Names are those of the files; `embedding` is borrowed when tied.
    Head(const ModelConfig& config, const std::string& norm_name, Parameter* embedding);
    Tensor loss(const Tensor& x, const Tensor& targets, std::optional<float> divisor);
    Tensor logits(const Tensor& x);

   private:
    Module* norm_;
    Parameter* weight_;
  };

  // Everything below the head.   y: (B, T, hidden)
  virtual Tensor body(const Tensor& ids, KvCache* cache) = 0;
  void set_head(Head& head) { head_ = &head; }

 private:
  ModelConfig config_;
  Head* head_ = nullptr;
};

// The model that config.json describes.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config);

}  // namespace zeepo
