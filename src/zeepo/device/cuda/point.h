// A Point of any CUDA stream, and streams that wait for one.
#pragma once

#include <cuda_runtime_api.h>

#include "zeepo/device/copy_lane.h"

namespace zeepo {

Point point_of(cudaStream_t stream);
void start_after(cudaStream_t stream, const Point& point);
// Without waiting.
bool reached(const Point& point);

}  // namespace zeepo
