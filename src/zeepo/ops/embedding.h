#pragma once

#include "zeepo/autograd/coded_value.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

// Rows of a table.   ids: int32 (...), within the table   table: (vocab, n)   y: (..., n)
Tensor embedding(const Tensor& ids, const Tensor& table);
// The same of a table that is stored as codes, without gradients.
Tensor embedding(const Tensor& ids, const CodedValue& table, const Shape& shape, DType dtype);

}  // namespace zeepo
