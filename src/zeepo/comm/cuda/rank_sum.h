// The one sum of all backends (comm/rank_sum.h) on a GPU: fp32, in rank order, rounded once.
#pragma once

#include <cuda_runtime_api.h>

#include "zeepo/comm/communicator.h"
#include "zeepo/device/view.h"

namespace zeepo {

// `ranks` equal parts, which lie one after another in `parts`; that of rank `own` is taken from the same place of
// `own_parts` instead.
struct RankParts {
  ConstView parts, own_parts;
  int own, ranks;
};
// sum = part 0 + part 1 + ...; sum may be of another float dtype, or the same memory as one of the parts if it is of
// theirs and nothing is summed onto it.
void sum_in_rank_order(cudaStream_t stream, const RankParts& parts, View sum, const SumInto& how = {});

}  // namespace zeepo
