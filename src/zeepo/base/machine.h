// What this machine has.
#pragma once

#include <cstdint>

namespace zeepo {

// Memory that this process may use: the machine's, or its control group's limit where that is lower.
std::int64_t usable_memory_bytes();
// What of it is free now, or held by caches that give way.
std::int64_t free_memory_bytes();
// The largest resident memory of this process so far (VmHWM).
std::int64_t peak_resident_bytes();

}  // namespace zeepo
