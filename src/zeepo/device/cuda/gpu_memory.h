// Memory of the thread's current GPU, taken by cudaMalloc.
//
// Throws Error when there is not that much to have: what it was for, how much is free, what to do. `remedy` is what
// helps beside ending other programs, as "lower --memory device=".
#pragma once

#include <cstddef>
#include <string_view>

#include "zeepo/device/memory.h"

namespace zeepo {

MemoryRange gpu_memory(int device, std::string_view what, std::size_t bytes, std::string_view remedy = "");

}  // namespace zeepo
