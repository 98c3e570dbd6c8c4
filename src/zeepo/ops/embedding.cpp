#include "zeepo/ops/embedding.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/embed_codes.h"
#include "zeepo/kernels/embedding.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

namespace {

Shape embedded(const Tensor& ids, const Shape& table) {
  if (ids.dtype() != DType::i32 || table.rank() != 2 || ids.shape().rank() >= Shape::kMaxRank)
    throw Error("embedding: ids {} {} in a table {}", name_of(ids.dtype()), ids.shape().str(), table.str());
  const Shape& shape = ids.shape();
  switch (shape.rank()) {
    case 1: return {shape[0], table[1]};
    case 2: return {shape[0], shape[1], table[1]};
    default: throw Error("embedding: ids {}: must have one or two extents", ids.shape().str());
  }
}

}  // namespace

Tensor embedding(const Tensor& ids, const CodedValue& table, const Shape& shape, DType dtype) {
  const Tensor y(embedded(ids, shape), dtype);
  launch([&](auto& s) {
    embed_codes(s, ids.view(), table.type, table.rows.view().template as<const std::byte>(), y.view());
  });
  return y;
}

Tensor embedding(const Tensor& ids, const Tensor& table) {
  Tensor y(embedded(ids, table.shape()), table.dtype());
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
