#include "zeepo/ops/embedding.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/embedding.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor embedding(const Tensor& ids, const Tensor& table) {
  if (ids.dtype() != DType::i32 || table.shape().rank() != 2 || ids.shape().rank() >= Shape::kMaxRank)
    throw Error("embedding: ids {} {} in a table {}", name_of(ids.dtype()), ids.shape().str(), table.shape().str());
  Shape shape = ids.shape();
  switch (shape.rank()) {
    case 1: shape = {shape[0], table.shape()[1]}; break;
    case 2: shape = {shape[0], shape[1], table.shape()[1]}; break;
    default: throw Error("embedding: ids {}: must have one or two extents", ids.shape().str());
  }
  Tensor y(shape, table.dtype());
  launch([&](auto& s) { embed(s, ids.view(), table.view(), y.view()); });
  if (Tape* tape = Tape::recording({&table})) {
    tape->record({&y}, [saved_ids = tape->save(ids), dtable = wanted_gradient(table)](std::span<Tensor> dy) {
      const Tensor rows = saved_ids();
      const auto to = dtable->target();
      launch([&](auto& s) { embed_backward(s, rows.view(), dy[0].view(), to.tensor.view(), to.write); });
    });
  }
  return y;
}

}  // namespace zeepo
