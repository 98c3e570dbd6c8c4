#include "zeepo/nn/layers.h"

#include <cmath>

#include "zeepo/ops/embedding.h"
#include "zeepo/ops/norm.h"

namespace zeepo {
namespace {

Init fan_in(std::int64_t inputs) { return Init::uniform(1.0f / std::sqrt(static_cast<float>(inputs))); }

std::int64_t total(const std::vector<Linear::Part>& parts) {
  std::int64_t out = 0;
  for (const auto& part : parts) out += part.out;
  return out;
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out) : Linear(in, out, Options{}) {}

Linear::Linear(std::int64_t in, std::int64_t out, const Options& options) : layout_(options.layout) {
  const bool plain = options.init_deviation == 0;
  const Shape shape = layout_ == WeightLayout::out_in ? Shape{out, in} : Shape{in, out};
  weight_ = &parameter("weight", shape, plain ? fan_in(in) : Init::normal(options.init_deviation));
  if (options.bias == Bias::yes) bias_ = &parameter("bias", {out}, plain ? fan_in(in) : Init::zeros());
}

Linear::Linear(std::int64_t in, const std::vector<Part>& parts, const Options& options)
    : Linear(in, total(parts), options) {
  std::vector<Parameter::Slice> weights, biases;
  for (const auto& part : parts) {
    weights.push_back({part.name + ".weight", {part.out, in}});
    biases.push_back({part.name + ".bias", {part.out}});
  }
  weight_->set_slices(std::move(weights));
  if (bias_) bias_->set_slices(std::move(biases));
}

Tensor Linear::forward(const Tensor& x) { return linear(x, *weight_, bias_ ? Tensor(*bias_) : Tensor(), layout_); }

Embedding::Embedding(std::int64_t vocab, std::int64_t width, float init_deviation)
    : weight_(&parameter("weight", {vocab, width}, Init::normal(init_deviation))) {}

Tensor Embedding::forward(const Tensor& ids) { return embedding(ids, *weight_); }

LayerNorm::LayerNorm(std::int64_t width, float eps)
    : weight_(&parameter("weight", {width}, Init::ones())),
      bias_(&parameter("bias", {width}, Init::zeros())),
      eps_(eps) {}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, *weight_, *bias_, eps_); }

RmsNorm::RmsNorm(std::int64_t width, float eps) : weight_(&parameter("weight", {width}, Init::ones())), eps_(eps) {}

Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, *weight_, eps_); }

Conv2d::Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const ConvOptions& options)
    : weight_(&parameter("weight", {out, in, kernel, kernel}, fan_in(in * kernel * kernel))),
      bias_(&parameter("bias", {out}, fan_in(in * kernel * kernel))),
      options_(options) {}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, *weight_, *bias_, options_); }

}  // namespace zeepo
