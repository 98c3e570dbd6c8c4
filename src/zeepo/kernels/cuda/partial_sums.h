// Sums over rows in a fixed order: blocks sum some rows each into fp32 partials, which are then added up.
#pragma once

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/view.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo::cuda {

// How many blocks of `threads` to cut `rows` of width n into: by the shape alone, and so that the partials of `kinds`
// sums stay in a quarter of the workspace.
std::int64_t row_blocks(std::int64_t rows, std::int64_t n, std::int64_t kinds, std::int64_t threads);

// out[j] = partials[0·stride + j] + partials[1·stride + j] + ..., or that added to out[j]; rounded once.
void add_partial_sums(CudaStream& stream, const float* partials, std::int64_t blocks, std::int64_t stride, View out,
                      Write write);

}  // namespace zeepo::cuda
