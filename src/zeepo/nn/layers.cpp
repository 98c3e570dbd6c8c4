#include "zeepo/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "zeepo/base/error.h"
#include "zeepo/ops/activated_linear.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/embedding.h"
#include "zeepo/ops/norm.h"
#include "zeepo/ops/tiled_linear.h"

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
  rows_ = shape[0];
  weight_ = &parameter("weight", shape, plain ? fan_in(in) : Init::normal(options.init_deviation));
  if (options.bias == Bias::yes) bias_ = &parameter("bias", {out}, plain ? fan_in(in) : Init::zeros());
}

Linear::Linear(std::int64_t in, const std::vector<Part>& parts, const Options& options)
    : Linear(in, total(parts), options) {
  std::vector<Parameter::Slice> weights, biases;
  for (const auto& part : parts) {
    weights.push_back({.name = part.name + ".weight", .shape = {part.out, in}});
    biases.push_back({.name = part.name + ".bias", .shape = {part.out}});
  }
  weight_->set_slices(std::move(weights));
  if (bias_) bias_->set_slices(std::move(biases));
}

class Linear::Tile final : public Module {
 public:
  // Rows [first_row, first_row + rows) of `whole`.
  Tile(const Parameter& whole, std::int64_t first_row, std::int64_t rows)
      : first_row_(first_row), weight_(&parameter(whole.name(), {rows, whole.shape()[1]}, whole.init())) {
    weight_->set_slices(slices_of(whole, first_row * whole.shape()[1], weight_->elements()));
    weight_->leaf().set_trainable(whole.leaf().trainable());
    mark_tile();
  }

  void multiply(const Tensor& x, TiledLinear& product) {
    visit(x, [&](const Tensor& input) {
      product.multiply(*weight_, first_row_);
      return input;
    });
  }

 private:
  static std::vector<Parameter::Slice> slices_of(const Parameter& whole, std::int64_t begin, std::int64_t elements) {
    std::vector<Parameter::Slice> result;
    std::int64_t at = 0;
    for (const auto& slice : whole.slices()) {
      const std::int64_t first = std::max(begin, at), last = std::min(begin + elements, at + slice.elements);
      if (first < last) result.push_back({slice.name, slice.shape, slice.begin + first - at, last - first});
      at += slice.elements;
    }
    return result;
  }

  std::int64_t first_row_;
  Parameter* weight_;
};

void Linear::cut(std::int64_t count) {
  if (!weight_) throw Error("linear: a layer is cut into {} tiles, but has {} already", count, tiles_.size());
  const auto whole = give_up(*weight_);
  weight_ = nullptr;
  const std::int64_t tiles = std::min(count, rows_);
  for (std::int64_t i = 0; i < tiles; ++i) {
    const std::int64_t first = rows_ * i / tiles, end = rows_ * (i + 1) / tiles;
    tiles_.push_back(&child<Tile>("", *whole, first, end - first));
  }
}

void tile_linears(Module& model, std::int64_t count) {
  if (count < 1) throw Error("linear: {} tiles: must be at least 1", count);
  if (count == 1) return;
  std::set<const Parameter*> borrowed;
  for_each_module(model, [&](Module& module) {
    borrowed.insert(module.borrowed_parameters().begin(), module.borrowed_parameters().end());
  });
  for_each_module(model, [&](Module& module) {
    auto* linear = dynamic_cast<Linear*>(&module);
    if (linear && !borrowed.contains(linear->weight_)) linear->cut(count);
  });
}

void set_products(Module& model, Products products) {
  for_each_module(model, [&](Module& module) {
    if (auto* linear = dynamic_cast<Linear*>(&module)) linear->products_ = products;
  });
}

Tensor Linear::forward(const Tensor& x) {
  const Tensor bias = bias_ ? Tensor(*bias_) : Tensor();
  if (weight_) return linear(x, *weight_, bias, layout_, products_);
  TiledLinear product(x, bias, rows_, layout_);
  if (TiledLinear::order(layout_) == TiledLinear::Order::first_row_first)
    for (Tile* tile : tiles_) tile->multiply(x, product);
  else
    for (auto tile = tiles_.rbegin(); tile != tiles_.rend(); ++tile) (*tile)->multiply(x, product);
  return product.finish();
}

Tensor Linear::of_activated(const Tensor& x, Activation f) {
  return visit(x, [this, f](const Tensor& input) {
    if (!weight_ || products_ == Products::fp8) return forward(activate(input, f));
    return activated_linear(input, f, *weight_, bias_ ? Tensor(*bias_) : Tensor(), layout_);
  });
}

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
