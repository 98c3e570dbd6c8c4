// Writes one row into every row of a matrix.
#pragma once

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/view.h"

namespace zeepo::cuda {

// y[i][j] = row[j].   row: (n), any float type   y: fp32 (..., n)
void fill_rows(CudaStream& stream, ConstView row, View y);

}  // namespace zeepo::cuda
