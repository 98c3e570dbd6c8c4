// The layers that models are built from. Each is one op with its parameters.
#pragma once

#include <string>
#include <vector>

#include "zeepo/nn/module.h"
#include "zeepo/ops/conv.h"
#include "zeepo/ops/linear.h"

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

 private:
  WeightLayout layout_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

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
