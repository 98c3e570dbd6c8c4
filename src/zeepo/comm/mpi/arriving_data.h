// Whether anything comes from other machines: on a slow link a heartbeat may be far behind the data that it follows.
#pragma once

#include <chrono>

namespace zeepo {

// Whether a TCP connection of this process to another machine has brought data within this time. False where there is
// none: ranks on one machine share memory, and other networks have no such queues.
bool data_has_arrived_within(std::chrono::milliseconds time) noexcept;

}  // namespace zeepo
