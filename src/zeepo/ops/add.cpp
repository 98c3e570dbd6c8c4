#include "zeepo/ops/add.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor add(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) throw Error("add: {} and {}: must be of one shape", a.shape().str(), b.shape().str());
  Tensor y(a.shape(), a.dtype());
  launch([&](auto& s) { add(s, a.view(), b.view(), y.view()); });
  if (Tape* tape = Tape::recording({&a, &b})) {
    tape->record({&y}, [da = wanted_gradient(a), db = wanted_gradient(b)](std::span<Tensor> dy) {
      if (da) da->add(dy[0]);
      if (db) db->add(dy[0]);
    });
  }
  return y;
}

}  // namespace zeepo
