#include "zeepo/model/language_model.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/model/gpt2.h"
#include "zeepo/model/llama.h"
#include "zeepo/nn/layers.h"
#include "zeepo/ops/linear.h"
#include "zeepo/ops/loss.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// The weight of an untied head, as a module of its own so that it is named as files name it.
class Projection final : public Module {
 public:
  Projection(std::int64_t vocab, std::int64_t hidden, float init_range)
      : weight_(&parameter("weight", {vocab, hidden}, Init::normal(init_range))) {}
  Parameter& weight() { return *weight_; }

 private:
  Parameter* weight_;
};

// These rows of all.   x: (B, T, n)   y: elements of `shape`, which is (.., n)
Tensor rows_of(const Tensor& x, std::span<const std::int64_t> rows, Shape shape) {
  const std::int64_t width = x.shape()[2];
  const Tensor y(shape, x.dtype());
  for (std::size_t i = 0; i < rows.size(); ++i)
    launch([&](auto& s) {
      copy(s, x.part(rows[i] * width, {width}).view(), y.part(static_cast<std::int64_t>(i) * width, {width}).view());
    });
  return y;
}

// The last position of each sequence.   x: (B, T, n)   y: (B, 1, n)
Tensor last_rows(const Tensor& x) {
  const std::int64_t batch = x.shape()[0], time = x.shape()[1];
  if (time == 1) return x;
  std::vector<std::int64_t> rows;
  for (std::int64_t b = 0; b < batch; ++b) rows.push_back(b * time + time - 1);
  return rows_of(x, rows, {batch, 1, x.shape()[2]});
}

void check_ids(const Tensor& ids, const char* what) {
  if (ids.dtype() != DType::i32 || ids.shape().rank() != 2)
    throw Error("model: {} {} {}: must be int32 (batch, time)", what, name_of(ids.dtype()), ids.shape().str());
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, std::int64_t batch, std::int64_t capacity, DType dtype) {
  const Shape shape{batch, capacity, cached_width(config.kv_heads, config.head_dim, dtype)};
  for (std::int64_t i = 0; i < config.layers; ++i)
    layers.push_back({Tensor(shape, dtype, Kind::activations), Tensor(shape, dtype, Kind::activations)});
}

KvPages::KvPages(const ModelConfig& config, std::int64_t pages, std::int64_t page_rows, DType dtype, Place place) {
  const Shape shape{pages, page_rows, cached_width(config.kv_heads, config.head_dim, dtype)};
  for (std::int64_t i = 0; i < config.layers; ++i) layers.emplace_back(shape, dtype, place);
}

std::vector<std::int32_t> Past::positions(std::int64_t time) const {
  std::vector<std::int32_t> positions;
  const auto add = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) positions.push_back(static_cast<std::int32_t>(first + i));
  };
  if (pages != nullptr)
    for (const PagedSequence& sequence : sequences) add(sequence.past, sequence.rows);
  else
    add(cache ? cache->length() : 0, time);
  return positions;
}

std::int64_t Past::longest(std::int64_t time) const {
  if (pages == nullptr) return (cache ? cache->length() : 0) + time;
  std::int64_t longest = 0;
  for (const PagedSequence& sequence : sequences) longest = std::max(longest, sequence.past + sequence.rows);
  return longest;
}

Tensor Past::attend(const Tensor& qkv, const HeadLayout& heads, const AttentionOptions& options,
                    std::size_t layer) const {
  if (pages != nullptr) {
    if (ahead) ahead->next = layer + 1 < pages->layers.size() ? &pages->layers[layer + 1] : nullptr;
    return attention(qkv, heads, options, pages->layers[layer], sequences, ahead.get());
  }
  return cache ? attention(qkv, heads, options, cache->layers[layer]) : attention(qkv, heads, options);
}

Tensor Pass::attend(const Tensor& qkv, const HeadLayout& heads, const AttentionOptions& options,
                    std::size_t layer) const {
  if (past.cache != nullptr && past.pages == nullptr)
    return rotary_attention(qkv, heads, cosines, sines, options, past.cache->layers[layer]);
  return past.attend(rotary(qkv, heads, cosines, sines, 0), heads, options, layer);
}

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets, std::optional<float> divisor) {
  check_ids(ids, "ids");
  check_ids(targets, "targets");
  return head_->loss(body(ids, {}), targets, divisor);
}

Tensor LanguageModel::logits(const Tensor& ids, KvCache* cache, Positions positions) {
  check_ids(ids, "ids");
  const Tensor x = body(ids, {.cache = cache});
  return head_->logits(positions == Positions::last ? last_rows(x) : x);
}

Tensor LanguageModel::logits(const Tensor& ids, KvPages& pages, std::span<const PagedSequence> sequences,
                             std::span<const std::int64_t> rows) {
  check_ids(ids, "ids");
  const Tensor x = body(ids, {.pages = &pages, .sequences = sequences, .ahead = std::make_shared<PagesAhead>()});
  return head_->logits(rows_of(x, rows, {1, static_cast<std::int64_t>(rows.size()), x.shape()[2]}));
}

LanguageModel::Head::Head(const ModelConfig& config, const std::string& norm_name, Parameter* embedding) {
  mark_unit();
  if (config.architecture == Architecture::gpt2)
    norm_ = &child<LayerNorm>(norm_name, config.hidden, config.norm_eps);
  else
    norm_ = &child<RmsNorm>(norm_name, config.hidden, config.norm_eps);
  weight_ = config.tied_head ? &borrow(*embedding)
                             : &child<Projection>("lm_head", config.vocab, config.hidden, config.init_range).weight();
}

Tensor LanguageModel::Head::loss(const Tensor& x, const Tensor& targets, std::optional<float> divisor) {
  return visit(x, [this, targets, divisor](const Tensor& input) {
    return head_cross_entropy((*norm_)(input), *weight_, targets, divisor);
  });
}

Tensor LanguageModel::Head::logits(const Tensor& x) {
  return visit(x, [this](const Tensor& input) {
    const auto* norm = dynamic_cast<const RmsNorm*>(norm_);
    if (norm != nullptr && in_few_rows(input))
      if (Tensor y = few_row_linear(input, *weight_, {}, {.norm = norm->weight(), .eps = norm->eps()}); y.defined())
        return y;
    return linear((*norm_)(input), *weight_);
  });
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config) {
  if (config.architecture == Architecture::gpt2) return std::make_unique<Gpt2>(config);
  return std::make_unique<Llama>(config);
}

}  // namespace zeepo
