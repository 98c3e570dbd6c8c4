// How kernels of a few operations an element cut their work: by size only, so that any thread count gives the same
// cuts.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zeepo {

// Elements a task: long enough to hide handing it out, short enough to stay in a core's second-level cache.
inline constexpr std::int64_t kElementwiseGrain = 1 << 15;

// Whole rows of n elements a task.
inline std::int64_t rows_per_task(std::int64_t n) {
  return std::max<std::int64_t>(1, kElementwiseGrain / std::max<std::int64_t>(1, n));
}

}  // namespace zeepo
