// Softmax and cross entropy over the last extent, in fp32 inside.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

void softmax(CpuStream&, ConstView x, View y);
void softmax(CudaStream&, ConstView x, View y);
void softmax(DryStream&, ConstView x, View y);
// dx = y · (dy − sum(dy · y))
void softmax_backward(CpuStream&, ConstView y, ConstView dy, View dx);
void softmax_backward(CudaStream&, ConstView y, ConstView dy, View dx);
void softmax_backward(DryStream&, ConstView y, ConstView dy, View dx);

// How many logits at a time keep a backend busy: the head's weight is read and its gradient added to once for each
// piece of so many, which must stay small beside any model. 128 MiB in fp32; on a GPU, whose products want thousands of
// rows, 1 GiB in 16 bits.
constexpr std::int64_t logits_at_a_time(Backend backend) {
  return std::int64_t{1} << (backend == Backend::cuda ? 29 : 25);
}
// Their rows are a multiple of this where there are enough: the tile of a GPU's products, of which a part costs a whole
// one.
constexpr std::int64_t rows_of_logits(Backend backend) { return backend == Backend::cuda ? 256 : 1; }

// losses[i] = log(sum(exp(logits[i]))) − logits[i][targets[i]].   logits: (rows, n)   targets: int32 (rows)
// losses: fp32 (rows). With dlogits: dlogits[i] = grad_scale · (softmax(logits[i]) − onehot(targets[i])), and it may be
// the same memory as logits. A negative target is left out: its loss and gradient are zero.
void cross_entropy(CpuStream&, ConstView logits, ConstView targets, View losses, View dlogits, float grad_scale);
void cross_entropy(CudaStream&, ConstView logits, ConstView targets, View losses, View dlogits, float grad_scale);
void cross_entropy(DryStream&, ConstView logits, ConstView targets, View losses, View dlogits, float grad_scale);

// sum[0] (fp32) = factor · (x[0] + x[1] + ...), added in a fixed order in fp64; overwritten or added to.
void sum(CpuStream&, ConstView x, float factor, View sum, bool add_to_sum);
void sum(CudaStream&, ConstView x, float factor, View sum, bool add_to_sum);
void sum(DryStream&, ConstView x, float factor, View sum, bool add_to_sum);

}  // namespace zeepo
