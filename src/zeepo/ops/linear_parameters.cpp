#include "zeepo/ops/linear_parameters.h"

#include "zeepo/base/error.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

std::int64_t linear_width(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const bool out_in = layout == WeightLayout::out_in;
  const std::int64_t in = weight.shape()[out_in ? 1 : 0], out = weight.shape()[out_in ? 0 : 1];
  if (weight.shape().rank() != 2 || x.shape()[-1] != in)
    throw Error("linear: x {} does not fit the weight {}", x.shape().str(), weight.shape().str());
  if (bias.defined() && bias.elements() != out)
    throw Error("linear: bias {} does not fit the weight {}", bias.shape().str(), weight.shape().str());
  return out;
}

LinearParameters::LinearParameters(Tape& tape, const Tensor& x, const Tensor& weight, const Tensor& bias,
                                   WeightLayout layout)
    : dweight_(wanted_gradient(weight)),
      dbias_(wanted_gradient(bias)),
      saved_x_(dweight_ ? tape.save(x) : Saved()),
      layout_(layout) {}

void LinearParameters::add_gradients(const Tensor& dy) const {
  if (dweight_) {
    const auto to = dweight_->target();
    const Tensor x = saved_x_();
    const bool out_in = layout_ == WeightLayout::out_in;
    const Tensor &a = out_in ? dy : x, &b = out_in ? x : dy;
    launch([&](auto& s) { matmul(s, a.view(), b.view(), to.tensor.view(), {.a = Transpose::yes, .write = to.write}); });
  }
  if (dbias_) {
    const auto to = dbias_->target();
    launch([&](auto& s) { sum_rows(s, dy.view(), to.tensor.view(), to.write); });
  }
}

}  // namespace zeepo
