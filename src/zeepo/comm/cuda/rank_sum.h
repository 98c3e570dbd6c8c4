// The one sum of all backends (comm/rank_sum.h) on a GPU: fp32, in rank order, rounded once.
#pragma once

#include <cuda_runtime_api.h>

#include "zeepo/device/view.h"

namespace zeepo {

// sum = part 0 + part 1 + ... of `ranks` equal parts, which lie one after another in `parts`; that of rank `own` is
// taken from the same place of `own_parts` instead. sum may be of another float dtype, or the same memory as one of the
// parts if it is of theirs.
void sum_in_rank_order(cudaStream_t stream, ConstView parts, ConstView own_parts, int own, int ranks, View sum);

}  // namespace zeepo
