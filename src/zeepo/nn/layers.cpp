#include "zeepo/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "zeepo/base/error.h"
#include "zeepo/ops/activated_linear.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"
#include "zeepo/ops/embedding.h"
#include "zeepo/ops/join.h"
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

// Elements [begin, begin + elements) of a parameter.
std::vector<Parameter::Slice> slices_of(const Parameter& whole, std::int64_t begin, std::int64_t elements) {
  std::vector<Parameter::Slice> result;
  std::int64_t at = 0;
  for (const auto& slice : whole.slices()) {
    const std::int64_t first = std::max(begin, at), last = std::min(begin + elements, at + slice.elements);
    if (first < last)
      result.push_back({slice.name, slice.shape, slice.begin + first - at, last - first, slice.trainable});
    at += slice.elements;
  }
  return result;
}

// Where the elements of a parameter become frozen or trained, its begin and end too.
std::vector<std::int64_t> changes_of(const Parameter& whole) {
  std::vector<std::int64_t> changes{0};
  std::int64_t at = 0;
  for (std::size_t i = 0; i < whole.slices().size(); ++i) {
    if (i > 0 && whole.slices()[i].trainable != whole.slices()[i - 1].trainable) changes.push_back(at);
    at += whole.slices()[i].elements;
  }
  changes.push_back(at);
  return changes;
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out) : Linear(in, out, Options{}) {}

Linear::Linear(std::int64_t in, std::int64_t out, const Options& options) : layout_(options.layout) {
  const bool plain = options.init_deviation == 0;
  const Shape shape = layout_ == WeightLayout::out_in ? Shape{out, in} : Shape{in, out};
  rows_ = shape[0];
  weight_ = &parameter("weight", shape, plain ? fan_in(in) : Init::normal(options.init_deviation));
  if (options.bias == Bias::yes) biases_.push_back(&parameter("bias", {out}, plain ? fan_in(in) : Init::zeros()));
}

Linear::Linear(std::int64_t in, const std::vector<Part>& parts, const Options& options)
    : Linear(in, total(parts), options) {
  std::vector<Parameter::Slice> weights, biases;
  for (const auto& part : parts) {
    weights.push_back({.name = part.name + ".weight", .shape = {part.out, in}});
    biases.push_back({.name = part.name + ".bias", .shape = {part.out}});
  }
  weight_->set_slices(std::move(weights));
  if (!biases_.empty()) biases_.front()->set_slices(std::move(biases));
}

class Linear::Tile final : public Module {
 public:
  // Rows [first_row, first_row + rows) of `whole`.
  Tile(const Parameter& whole, std::int64_t first_row, std::int64_t rows)
      : first_row_(first_row), weight_(&parameter(whole.name(), {rows, whole.shape()[1]}, whole.init())) {
    weight_->set_slices(slices_of(whole, first_row * whole.shape()[1], weight_->elements()));
    weight_->leaf().set_trainable(weight_->slices().front().trainable && whole.leaf().trainable());
    mark_tile();
  }

  void multiply(const Tensor& x, TiledLinear& product) {
    visit(x, [&](const Tensor& input) {
      product.multiply(*weight_, first_row_);
      return input;
    });
  }

 private:
  std::int64_t first_row_;
  Parameter* weight_;
};

void Linear::cut(std::int64_t count) {
  if (!weight_) throw Error("linear: a layer is cut into {} tiles, but has {} already", count, tiles_.size());
  const auto whole = give_up(*weight_);
  weight_ = nullptr;
  const std::int64_t tiles = std::min(count, rows_), width = whole->shape()[1];
  std::set<std::int64_t> ends;
  for (const std::int64_t change : changes_of(*whole)) ends.insert(change / width);
  for (std::int64_t i = 1; i < tiles; ++i) ends.insert(rows_ * i / tiles);
  for (auto end = std::next(ends.begin()); end != ends.end(); ++end)
    tiles_.push_back(&child<Tile>("", *whole, *std::prev(end), *end - *std::prev(end)));
}

void Linear::cut_bias() {
  const auto whole = give_up(*biases_.front());
  biases_.clear();
  const auto changes = changes_of(*whole);
  for (std::size_t i = 1; i < changes.size(); ++i) {
    const std::int64_t begin = changes[i - 1], elements = changes[i] - begin;
    biases_.push_back(&parameter(whole->name(), {elements}, whole->init()));
    biases_.back()->set_slices(slices_of(*whole, begin, elements));
    biases_.back()->leaf().set_trainable(biases_.back()->slices().front().trainable);
  }
}

void tile_linears(Module& model, std::int64_t count) {
  if (count < 1) throw Error("linear: {} tiles: must be at least 1", count);
  std::set<const Parameter*> borrowed;
  for_each_module(model, [&](Module& module) {
    borrowed.insert(module.borrowed_parameters().begin(), module.borrowed_parameters().end());
  });
  for_each_module(model, [&](Module& module) {
    auto* linear = dynamic_cast<Linear*>(&module);
    if (!linear) return;
    if (!borrowed.contains(linear->weight_) && (count > 1 || (linear->weight_ && linear->weight_->partly_frozen())))
      linear->cut(count);
    if (!linear->biases_.empty() && linear->biases_.front()->partly_frozen()) linear->cut_bias();
  });
}

void set_products(Module& model, Products products) {
  for_each_module(model, [&](Module& module) {
    if (auto* linear = dynamic_cast<Linear*>(&module)) linear->products_ = products;
  });
}

Tensor Linear::bias() const {
  if (biases_.size() <= 1) return biases_.empty() ? Tensor() : Tensor(*biases_.front());
  std::vector<Tensor> parts;
  for (const Parameter* part : biases_) parts.push_back(*part);
  return join(parts);
}

Tensor Linear::forward(const Tensor& x) {
  if (weight_) return linear(x, *weight_, bias(), layout_, products_);
  TiledLinear product(x, bias(), rows_, layout_);
  if (TiledLinear::order(layout_) == TiledLinear::Order::first_row_first)
    for (Tile* tile : tiles_) tile->multiply(x, product);
  else
    for (auto tile = tiles_.rbegin(); tile != tiles_.rend(); ++tile) (*tile)->multiply(x, product);
  return product.finish();
}

Tensor Linear::of_activated(const Tensor& x, Activation f) {
  return visit(x, [this, f](const Tensor& input) {
    if (!weight_ || products_ == Products::fp8) return forward(activate(input, f));
    return activated_linear(input, f, *weight_, bias(), layout_);
  });
}

Tensor few_row_linear(const Tensor& x, const Parameter& weight, const Tensor& bias, const Around& around) {
  if (const CodedValue codes = weight.leaf().codes(); codes.defined())
    return linear_around(x, codes, weight.shape()[0], bias, around);
  return linear_around(x, weight, bias, around);
}

Tensor Linear::with(const Tensor& x, const Around& around) {
  return visit(x, [this, &around](const Tensor& input) {
    if (weight_ && layout_ == WeightLayout::out_in && products_ == Products::as_stored)
      if (Tensor y = few_row_linear(input, *weight_, bias(), around); y.defined()) return y;
    Tensor y = forward(around.norm.defined() ? rms_norm(input, around.norm, around.eps) : input);
    if (around.swiglu) y = swiglu(y);
    return around.sum.defined() ? add(around.sum, y) : y;
  });
}

Embedding::Embedding(std::int64_t vocab, std::int64_t width, float init_deviation)
    : weight_(&parameter("weight", {vocab, width}, Init::normal(init_deviation))) {}

Tensor Embedding::forward(const Tensor& ids) {
  if (const CodedValue codes = weight_->leaf().codes(); codes.defined() && weight_->shape()[1] % kCodedRow == 0)
    return embedding(ids, codes, weight_->shape(), weight_->leaf().dtype());
  return embedding(ids, *weight_);
}

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
