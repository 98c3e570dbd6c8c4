// Cross entropy: of given logits, and fused with the head that makes them.
#pragma once

#include <optional>

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// Mean over the rows of −log softmax(logits)[target]: one fp32 element.   logits: (rows, n)   targets: int32 (rows)
Tensor cross_entropy(const Tensor& logits, const Tensor& targets);

// cross_entropy(x weightᵀ, targets), some rows at a time: the full logits never exist.
// x: (..., n)   weight: (vocab, n)   targets: int32 (...); a negative one is left out.
// The sum over the rows is divided by `divisor`, by their number where there is none: the mean over the targets that
// count in several micro-batches is a sum of these with one divisor.
// While a tape records, the gradients are computed here too, from the logits at hand, with the tape's loss scale; the
// backward pass must then start from this loss.
Tensor head_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                          std::optional<float> divisor = std::nullopt);

}  // namespace zeepo
