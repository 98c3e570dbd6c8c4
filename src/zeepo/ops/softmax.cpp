#include "zeepo/ops/softmax.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/kernels/softmax.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor softmax(const Tensor& x) {
  Tensor y(x.shape(), x.dtype());
  launch([&](auto& s) { softmax(s, x.view(), y.view()); });
  if (Tape* tape = Tape::recording({&x})) {
    tape->record({&y}, [saved_y = tape->save(y), dx = wanted_gradient(x)](std::span<Tensor> dy) {
      const Tensor output = saved_y(), d = writable(std::move(dy[0]));
      launch([&](auto& s) { softmax_backward(s, output.view(), d.view(), d.view()); });
      dx->add(d);
    });
  }
  return y;
}

}  // namespace zeepo
