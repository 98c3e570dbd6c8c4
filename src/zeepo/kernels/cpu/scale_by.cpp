#include "zeepo/kernels/elementwise.h"

namespace zeepo {

void scale_by(CpuStream& stream, ConstView x, ConstView factor, View y) { scale(stream, x, *factor.as<float>(), y); }

}  // namespace zeepo
