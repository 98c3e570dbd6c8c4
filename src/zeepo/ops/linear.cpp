#include "zeepo/ops/linear.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const bool out_in = layout == WeightLayout::out_in;
  const std::int64_t in = weight.shape()[out_in ? 1 : 0], out = weight.shape()[out_in ? 0 : 1];
  if (weight.shape().rank() != 2 || x.shape()[-1] != in)
    throw Error("linear: x {} does not fit the weight {}", x.shape().str(), weight.shape().str());
  if (bias.defined() && bias.elements() != out)
    throw Error("linear: bias {} does not fit the weight {}", bias.shape().str(), weight.shape().str());

  Tensor y(x.shape().with_last(out), x.dtype());
  const auto transposed = out_in ? Transpose::yes : Transpose::no;
  launch([&](auto& s) { matmul(s, x.view(), weight.view(), y.view(), {.b = transposed, .bias = bias.view()}); });

  if (Tape* tape = Tape::recording({&x, &weight, &bias})) {
    const auto dx = wanted_gradient(x), dweight = wanted_gradient(weight), dbias = wanted_gradient(bias);
    const auto saved_x = dweight ? tape->save(x) : Saved();
    const auto saved_weight = dx ? tape->save(weight) : Saved();
    tape->record({&y}, [=](std::span<Tensor> dy) {
      if (dx) {
        const auto to = dx->target();
        const auto b = out_in ? Transpose::no : Transpose::yes;
        launch([&](auto& s) {
          matmul(s, dy[0].view(), saved_weight().view(), to.tensor.view(), {.b = b, .write = to.write});
        });
      }
      if (dweight) {
        const auto to = dweight->target();
        const Tensor input = saved_x();
        const Tensor &a = out_in ? dy[0] : input, &b = out_in ? input : dy[0];
        launch([&](auto& s) {
          matmul(s, a.view(), b.view(), to.tensor.view(), {.a = Transpose::yes, .write = to.write});
        });
      }
      if (dbias) {
        const auto to = dbias->target();
        launch([&](auto& s) { sum_rows(s, dy[0].view(), to.tensor.view(), to.write); });
      }
    });
  }
  return y;
}

}  // namespace zeepo
