// Numbers that the ranks tell each other, in order with the collectives of an engine: between two of its steps or
// passes, with its Device in scope, on every rank.
#pragma once

#include <cstdint>
#include <span>

#include "zeepo/zero/collectives.h"

namespace zeepo {

// Sums each number over all ranks.
void sum_over_ranks(Collectives& collectives, std::span<float> numbers);
// Rank 0's numbers on every rank; each gives as many. The memory for them is the device's.
void tell_all(Collectives& collectives, std::span<std::int32_t> numbers);

}  // namespace zeepo
