#include "zeepo/ops/activated_linear.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/ops/linear_parameters.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor activated_linear(const Tensor& x, Activation f, const Tensor& weight, const Tensor& bias, WeightLayout layout) {
  const std::int64_t out = linear_width(x, weight, bias, layout);
  Tensor input(x.shape(), x.dtype());
  launch([&](auto& s) { activate(s, f, x.view(), input.view()); });
  Tensor y(x.shape().with_last(out), x.dtype());
  launch([&](auto& s) {
    matmul(s, input.view(), weight.view(), y.view(), {.b = forward_transpose(layout), .bias = bias.view()});
  });

  if (Tape* tape = Tape::recording({&x, &weight, &bias})) {
    const auto dx = wanted_gradient(x);
    const LinearParameters parameters(*tape, input, weight, bias, layout);
    const auto saved_weight = dx ? tape->save(weight) : Saved(), saved_x = dx ? tape->save(x) : Saved();
    tape->record({&y}, [=](std::span<Tensor> dy) {
      if (dx) {
        const Tensor before = saved_x(), weights = saved_weight(), d(before.shape(), before.dtype());
        launch([&](auto& s) {
          matmul_activate_backward(s, dy[0].view(), weights.view(), f, before.view(), d.view(),
                                   {.b = backward_transpose(layout)});
        });
        dx->add(d);
      }
      parameters.add_gradients(dy[0]);
    });
  }
  return y;
}

}  // namespace zeepo
