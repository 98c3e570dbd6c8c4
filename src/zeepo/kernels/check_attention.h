// Whether the operands of attention belong together: the same for every backend. Throws Error with extents and types.
#pragma once

#include "zeepo/kernels/attention.h"

namespace zeepo {

void check_attention(const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const ConstHeads& out,
                     const View& log_sums, const AttentionOptions& options);
void check_attention_backward(const AttentionBackward& x, const AttentionOptions& options);
// Head size and extents that a backend's kernels are made for.
void check_attention_limits(const ConstHeads& q, const ConstHeads& k, std::int64_t max_head_dim);

}  // namespace zeepo
