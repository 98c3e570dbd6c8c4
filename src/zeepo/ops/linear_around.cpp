#include "zeepo/ops/linear_around.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/few_row_product.h"
#include "zeepo/ops/linear_parameters.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

bool in_few_rows(const Tensor& x) {
  return Tape::current() == nullptr && Device::current().compute.backend() == Backend::cuda &&
         size_of(x.dtype()) == 2 && x.shape().rows() <= kFewRows;
}

namespace {

// Fills in all but the weight.
Tensor multiplied(FewRowProduct op, const Tensor& x, std::int64_t out, const Tensor& bias, const Around& around) {
  const Tensor y(x.shape().with_last(around.swiglu ? out / 2 : out), x.dtype());
  op.x = x.view();
  op.bias = bias.view();
  op.norm = around.norm.view();
  op.eps = around.eps;
  op.swiglu = around.swiglu;
  op.sum = around.sum.view();
  op.y = y.view();
  bool taken = false;
  launch([&](auto& s) {
    taken = takes(s, op);
    if (taken) multiply(s, op);
  });
  return taken ? y : Tensor();
}

}  // namespace

Tensor linear_around(const Tensor& x, const Tensor& weight, const Tensor& bias, const Around& around) {
  const std::int64_t out = linear_width(x, weight, bias, WeightLayout::out_in);
  return multiplied({.weight = weight.view()}, x, out, bias, around);
}

Tensor linear_around(const Tensor& x, const CodedValue& weight, std::int64_t out, const Tensor& bias,
                     const Around& around) {
  if (coded_bytes(weight.type, out * x.shape()[-1]) != static_cast<std::size_t>(weight.rows.elements()))
    throw Error("linear: x {} does not fit a weight of {} rows in {} bytes of {}", x.shape().str(), out,
                weight.rows.elements(), name_of(weight.type));
  return multiplied({.codes = weight.rows.view().as<const std::byte>(), .coded = weight.type}, x, out, bias, around);
}

}  // namespace zeepo
