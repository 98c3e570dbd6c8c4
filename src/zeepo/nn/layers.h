// The layers that models are built from. Each is one op with its parameters.
#pragma once

#include <string>
#include <vector>

#include "zeepo/base/activation.h"
#include "zeepo/nn/module.h"
#include "zeepo/ops/conv.h"
#include "zeepo/ops/linear.h"
#include "zeepo/ops/linear_around.h"

namespace zeepo {

enum class Bias : bool { no, yes };

// y = x Wᵀ + b.   x: (..., in)   y: (..., out)
class Linear : public Module {
 public:
  // Several projections of the same input as one weight, each under its own name in files.
  struct Part {
    std::string name;
    std::int64_t out;
  };
  struct Options {
    Bias bias = Bias::yes;
    WeightLayout layout = WeightLayout::out_in;
    float init_deviation = 0;  // 0: uniform within 1/sqrt(in), as PyTorch does
  };

  Linear(std::int64_t in, std::int64_t out);
  Linear(std::int64_t in, std::int64_t out, const Options& options);
  Linear(std::int64_t in, const std::vector<Part>& parts, const Options& options);
  Tensor forward(const Tensor& x) override;
  // The layer of f(x), as one op (ops/activated_linear.h) unless it is in tiles or computes in fp8.
  Tensor of_activated(const Tensor& x, Activation f);
  // The layer of x with all around it, as one kernel where the device has one; for x in_few_rows().
  Tensor with(const Tensor& x, const Around& around);

 private:
  class Tile;
  friend void tile_linears(Module& model, std::int64_t count);
  friend void set_products(Module& model, Products products);
  void cut(std::int64_t count);
  void cut_bias();
  Tensor bias() const;

  WeightLayout layout_;
  std::int64_t rows_;                    // of the weight as it is stored
  Parameter* weight_;                    // null where it is in tiles
  std::vector<Tile*> tiles_ = {};        // in the order of their rows
  std::vector<Parameter*> biases_ = {};  // one; or several that follow one another, where some parts are frozen
  Products products_ = Products::as_stored;
};

// What every linear layer of the model computes its products with; not one in tiles, nor a head fused with its loss.
void set_products(Module& model, Products products);

// Cuts the weight of every linear layer in the model into `count` tiles of stored rows, as equal as whole rows allow
// and at least one row each, so that a tile is all that must be gathered at a time. Names, first values and files stay
// as they are, results too (ops/tiled_linear.h). A weight that another module borrows stays whole, as do embeddings and
// biases. A layer of which some parts are frozen and others not is cut there too, its bias as well, whatever the count:
// each tile is frozen, or is not. Once, before an engine is made for the model.
void tile_linears(Module& model, std::int64_t count);

// A product with the weight, (out, in), and all around it, as one kernel of few rows; undefined where the device has
// none.
Tensor few_row_linear(const Tensor& x, const Parameter& weight, const Tensor& bias, const Around& around);

// Rows of a table.   ids: int32 (B, T)   y: (B, T, width)
class Embedding : public Module {
 public:
  Embedding(std::int64_t vocab, std::int64_t width, float init_deviation = 1);
  Tensor forward(const Tensor& ids) override;
  Parameter& weight() { return *weight_; }

 private:
  Parameter* weight_;
};

// x: (..., width)
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t width, float eps = 1e-5f);
  Tensor forward(const Tensor& x) override;
  Tensor weight() const { return *weight_; }
  Tensor bias() const { return *bias_; }
  float eps() const { return eps_; }

 private:
  Parameter *weight_, *bias_;
  float eps_;
};

class RmsNorm : public Module {
 public:
  explicit RmsNorm(std::int64_t width, float eps = 1e-6f);
  Tensor forward(const Tensor& x) override;
  Tensor weight() const { return *weight_; }
  float eps() const { return eps_; }

 private:
  Parameter* weight_;
  float eps_;
};

// x: (N, in, H, W)   y: (N, out, ...); kernel × kernel windows.
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, const ConvOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  Parameter *weight_, *bias_;
  ConvOptions options_;
};

}  // namespace zeepo
