// Attention heads as int8: of each head of a row the codes of its values, then their bf16 scale. For a KV cache.
//
// A value is its code times the scale: the largest magnitude of the head over 127, rounded up to bf16. A head that
// holds an infinity or a NaN comes back as NaN. Coded heads are Heads of bytes whose head_dim is that of the values and
// two more.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/kernels/heads.h"

namespace zeepo {

constexpr std::int64_t coded_head_bytes(std::int64_t head_dim) { return head_dim + 2; }

// The same batch, rows and heads; head_dim is even. A head's codes do not depend on any other head.
void encode_heads(CpuStream&, ConstHeads from, Heads codes);
void encode_heads(CudaStream&, ConstHeads from, Heads codes);
void encode_heads(DryStream&, ConstHeads from, Heads codes);
// Rounded to the type of `to`.
void expand_heads(CpuStream&, ConstHeads codes, Heads to);
void expand_heads(CudaStream&, ConstHeads codes, Heads to);
void expand_heads(DryStream&, ConstHeads codes, Heads to);

}  // namespace zeepo
