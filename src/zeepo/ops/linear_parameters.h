// What ops with a linear layer in them share: its shapes, and the way of the gradient to its weight and bias.
#pragma once

#include <cstdint>
#include <memory>

#include "zeepo/autograd/tape.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/ops/linear.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

// The elements of a row of y. Throws Error where x or the bias does not fit the weight.
std::int64_t linear_width(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout);

// How the weight is read for y, and for the gradient of x.
inline Transpose forward_transpose(WeightLayout layout) {
  return layout == WeightLayout::out_in ? Transpose::yes : Transpose::no;
}
inline Transpose backward_transpose(WeightLayout layout) {
  return layout == WeightLayout::out_in ? Transpose::no : Transpose::yes;
}

// Made in the forward pass, for the backward pass; saves x if the weight wants a gradient.
class LinearParameters {
 public:
  LinearParameters(Tape& tape, const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout);
  // To those of weight and bias, where they are wanted.
  void add_gradients(const Tensor& dy) const;

 private:
  std::shared_ptr<Gradient> dweight_, dbias_;
  Saved saved_x_;
  WeightLayout layout_;
};

}  // namespace zeepo
