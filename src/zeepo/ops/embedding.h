#pragma once

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// Rows of a table.   ids: int32 (...), within the table   table: (vocab, n)   y: (..., n)
Tensor embedding(const Tensor& ids, const Tensor& table);

}  // namespace zeepo
