#include "zeepo/ops/dropout.h"

#include "zeepo/autograd/random_state.h"
#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor dropout(const Tensor& x, float p) {
  if (!(p >= 0 && p < 1)) throw Error("dropout: p = {}: must be at least 0 and below 1", p);
  if (p == 0 || !RandomState::current().training) return x;
  const RngKey key = RandomState::current().take();
  Tensor y(x.shape(), x.dtype());
  launch([&](auto& s) { dropout(s, x.view(), p, key, y.view()); });
  if (Tape* tape = Tape::recording({&x})) {
    tape->record({&y}, [p, key, dx = wanted_gradient(x)](std::span<Tensor> dy) {
      const Tensor d = writable(std::move(dy[0]));
      launch([&](auto& s) { dropout(s, d.view(), p, key, d.view()); });
      dx->add(d);
    });
  }
  return y;
}

}  // namespace zeepo
