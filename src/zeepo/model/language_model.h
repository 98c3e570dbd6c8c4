// A causal language model: token ids in, a loss or logits out. The same source runs resident, sharded, offloaded,
// trained or served; nothing here knows which.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "zeepo/model/config.h"
#include "zeepo/nn/module.h"
#include "zeepo/ops/paged_attention.h"

namespace zeepo {

// Keys and values of all layers for the positions seen so far, so that generation computes each position once.
struct KvCache {
  std::vector<LayerCache> layers;

  KvCache(const ModelConfig& config, std::int64_t batch, std::int64_t capacity, DType dtype);
  std::int64_t length() const { return layers.front().length; }
};

// The same of many sequences that come and go: all layers' keys and values in pages of `page_rows` positions.
struct KvPages {
  std::vector<LayerPages> layers;

  KvPages(const ModelConfig& config, std::int64_t pages, std::int64_t page_rows, DType dtype,
          Place place = Place::device);
};

// What came before the tokens of a pass, and where they join it: nothing, a cache, or the pages of its sequences.
struct Past {
  KvCache* cache = nullptr;
  KvPages* pages = nullptr;
  std::span<const PagedSequence> sequences = {};  // with pages; borrowed
  std::shared_ptr<PagesAhead> ahead = {};         // with pages: from layer to layer

  // The position of each token of a row of `time` tokens, and how long the longest sequence is with them.
  std::vector<std::int32_t> positions(std::int64_t time) const;
  std::int64_t longest(std::int64_t time) const;
  Tensor attend(const Tensor& qkv, const HeadLayout& heads, const AttentionOptions& options, std::size_t layer) const;
};

// What the layers of one forward pass share. Copied into closures: cheap.
struct Pass {
  Tensor cosines, sines;  // of the pass's positions; undefined where the model has none
  Past past = {};

  // Rotates the queries and keys, and attends.
  Tensor attend(const Tensor& qkv, const HeadLayout& heads, const AttentionOptions& options, std::size_t layer) const;
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
  // Of sequences of unequal length, one after another in `ids` (1, T): the logits of these rows.   (1, rows, vocab)
  Tensor logits(const Tensor& ids, KvPages& pages, std::span<const PagedSequence> sequences,
                std::span<const std::int64_t> rows);

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
  virtual Tensor body(const Tensor& ids, const Past& past) = 0;
  void set_head(Head& head) { head_ = &head; }

 private:
  ModelConfig config_;
  Head* head_ = nullptr;
};

// The model that config.json describes.
std::unique_ptr<LanguageModel> make_model(const ModelConfig& config);

}  // namespace zeepo
