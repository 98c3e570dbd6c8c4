// A parameter as it is stored where codes are kept instead of values (kernels/coded_weights.h).
#pragma once

#include "zeepo/kernels/coded_weights.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

struct CodedValue {
  Tensor rows;  // bytes
  CodedType type = CodedType::same;
  bool defined() const { return rows.defined(); }
};

}  // namespace zeepo
