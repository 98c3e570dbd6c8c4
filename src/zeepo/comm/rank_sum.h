// The one sum of all backends: fp32, in rank order, rounded once. That makes results the same to the bit everywhere.
#pragma once

#include <span>

#include "zeepo/comm/communicator.h"
#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

// sum = parts[0] + parts[1] + ..., one part a rank, all of one float dtype and of sum's element count. sum may be of
// another float dtype, or the same memory as one of the parts if it is of theirs and nothing is summed onto it.
void sum_in_rank_order(CpuStream& stream, std::span<const ConstView> parts, View sum, const SumInto& how = {});

// Elements [part · n, part · n + n) of x, where n is `x.elements() / parts`.
ConstView part_of(ConstView x, int part, int parts);
View part_of(View x, int part, int parts);

}  // namespace zeepo
