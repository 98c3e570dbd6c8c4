#include "zeepo/ops/reshape.h"

#include "zeepo/autograd/tape.h"

namespace zeepo {

Tensor reshape(const Tensor& x, Shape shape) {
  Tensor y = x.viewed_as(shape);
  if (Tape* tape = Tape::recording({&x}))
    tape->record({&y}, [dx = wanted_gradient(x)](std::span<Tensor> dy) { dx->add(dy[0]); });
  return y;
}

}  // namespace zeepo
