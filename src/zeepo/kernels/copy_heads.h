#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/kernels/heads.h"

namespace zeepo {

// to = from: the same batch, rows, heads, head_dim and dtype, other strides.
void copy_heads(CpuStream&, ConstHeads from, Heads to);
void copy_heads(CudaStream&, ConstHeads from, Heads to);
void copy_heads(DryStream&, ConstHeads from, Heads to);

}  // namespace zeepo
