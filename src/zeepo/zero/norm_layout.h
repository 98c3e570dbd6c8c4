// Where the ranks' parts of the gradient norm lie, and how they become the sums of blocks: see kernels/gradient_norm.h.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "zeepo/zero/state_plan.h"

namespace zeepo {

struct NormLayout {
  std::int64_t rank_nodes = 1;             // of each rank, one rank after another; some may be unused
  std::vector<std::int64_t> first, count;  // of each unit, among this rank's nodes
  std::int64_t blocks = 0;                 // of all trained units
  std::int64_t table_elements = 0;         // of norm_table()
};

// Throws Error for a model that is too large to count its nodes in 32 bits.
NormLayout norm_layout(const StatePlan& plan);
// For merge_norm_nodes. Long for many ranks: a dry pass takes memory for it and leaves it out.
std::vector<std::int32_t> norm_table(const StatePlan& plan, const NormLayout& layout);

}  // namespace zeepo
