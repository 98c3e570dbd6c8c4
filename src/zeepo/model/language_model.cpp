#include "zeepo/model/language_model.h"

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

// The last position of each sequence.   x: (B, T, n)   y: (B, 1, n)
Tensor last_rows(const Tensor& x) {
  const std::int64_t batch = x.shape()[0], time = x.shape()[1], width = x.shape()[2];
  if (time == 1) return x;
  const Tensor y({batch, 1, width}, x.dtype());
  for (std::int64_t b = 0; b < batch; ++b)
    launch([&](auto& s) {
      copy(s, x.part((b * time + time - 1) * width, {width}).view(), y.part(b * width, {width}).view());
    });
  return y;
}

void check_ids(const Tensor& ids, const char* what) {
  if (ids.dtype() != DType::i32 || ids.shape().rank() != 2)
    throw Error("model: {} {} {}: must be int32 (batch, time)", what, name_of(ids.dtype()), ids.shape().str());
}

}  // namespace

KvCache::KvCache(const ModelConfig& config, std::int64_t batch, std::int64_t capacity, DType dtype) {
  const Shape shape{batch, capacity, config.kv_heads * config.head_dim};
  for (std::int64_t i = 0; i < config.layers; ++i)
    layers.push_back({Tensor(shape, dtype, Kind::activations), Tensor(shape, dtype, Kind::activations)});
}

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets, std::optional<float> divisor) {
  check_ids(ids, "ids");
  check_ids(targets, "targets");
  return head_->loss(body(ids, nullptr), targets, divisor);
}

Tensor LanguageModel::logits(const Tensor& ids, KvCache* cache, Positions positions) {
  check_ids(ids, "ids");
  const Tensor x = body(ids, cache);
  return head_->logits(positions == Positions::last ? last_rows(x) : x);
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
  return visit(x, [this](const Tensor& input) { return linear((*norm_)(input), *weight_); });
}

std::unique_ptr<LanguageModel> make_model(const ModelConfig& config) {
  if (config.architecture == Architecture::gpt2) return std::make_unique<Gpt2>(config);
  return std::make_unique<Llama>(config);
}

}  // namespace zeepo
