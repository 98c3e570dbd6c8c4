// Sums over rows in an order that no thread count changes: rows are cut into fixed blocks, a task adds the rows of its
// block in fp32, and the blocks' sums are added in the order of the blocks.
#pragma once

#include <cstdint>

#include "zeepo/kernels/matmul.h"

namespace zeepo {

struct RowBlocks {
  std::int64_t rows_per_block, blocks;
};
// At least 16 rows a block, at most 64 blocks.
RowBlocks row_blocks(std::int64_t rows);

// out[j] = partials[0·stride + j] + partials[1·stride + j] + ..., or that added to out[j]; rounded once.
void add_partial_sums(CpuStream& stream, const float* partials, std::int64_t blocks, std::int64_t stride, View out,
                      Write write);

}  // namespace zeepo
