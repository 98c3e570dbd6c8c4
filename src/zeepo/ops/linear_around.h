// A linear layer with what stands before and after it in a transformer's block, for few rows without gradients.
#pragma once

#include "zeepo/autograd/coded_value.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

struct Around {
  Tensor norm = {};     // of an RMS norm of x before the layer; undefined: none
  float eps = 0;        // of the norm
  bool swiglu = false;  // of the layer's result
  Tensor sum = {};      // what the result is added to; undefined: nothing
};

// Whether rows of x go through kernels that do several operations at once: no gradient is wanted, the rows are few, and
// the device has such kernels for their type (kernels/few_row_product.h).
bool in_few_rows(const Tensor& x);

// The layer and all around it as one kernel, for x in few rows; undefined where the kernel does not take these
// operands. weight: (out, in)   bias: (out) or undefined
Tensor linear_around(const Tensor& x, const Tensor& weight, const Tensor& bias, const Around& around = {});
// The same with a weight of `out` rows as it is stored, whose values never stand in memory.
Tensor linear_around(const Tensor& x, const CodedValue& weight, std::int64_t out, const Tensor& bias,
                     const Around& around = {});

}  // namespace zeepo
