// The token that is chosen without chance.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

// ids[i] = where row i is largest, the first among equals; -1 where its largest is no finite number, or one is NaN.
// logits: (..., n)   ids: int32, one a row
void most_likely(CpuStream&, ConstView logits, View ids);
void most_likely(CudaStream&, ConstView logits, View ids);
void most_likely(DryStream&, ConstView logits, View ids);

}  // namespace zeepo
