#include "zeepo/ops/activation.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor activate(const Tensor& x, Activation activation) {
  Tensor y(x.shape(), x.dtype());
  launch([&](auto& s) { activate(s, activation, x.view(), y.view()); });
  if (Tape* tape = Tape::recording({&x})) {
    tape->record({&y}, [activation, saved_x = tape->save(x), dx = wanted_gradient(x)](std::span<Tensor> dy) {
      const Tensor input = saved_x(), d = writable(std::move(dy[0]));
      launch([&](auto& s) { activate_backward(s, activation, input.view(), d.view(), d.view()); });
      dx->add(d);
    });
  }
  return y;
}

Tensor swiglu(const Tensor& x) {
  if (x.shape()[-1] % 2 != 0) throw Error("swiglu: x {}: the last extent must be even", x.shape().str());
  Tensor y(x.shape().with_last(x.shape()[-1] / 2), x.dtype());
  launch([&](auto& s) { swiglu(s, x.view(), y.view()); });
  if (Tape* tape = Tape::recording({&x})) {
    tape->record({&y}, [saved_x = tape->save(x), dx = wanted_gradient(x)](std::span<Tensor> dy) {
      const Tensor input = saved_x();
      const Tensor d(input.shape(), input.dtype());
      launch([&](auto& s) { swiglu_backward(s, input.view(), dy[0].view(), d.view()); });
      dx->add(d);
    });
  }
  return y;
}

}  // namespace zeepo
