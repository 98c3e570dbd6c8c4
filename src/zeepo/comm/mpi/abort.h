// The end of a job that has failed.
#pragma once

#include <string>

namespace zeepo {

// Prints one line with the rank and the message, lets the other ranks print theirs, and ends all of them.
[[noreturn]] void abort_mpi(int rank, const std::string& message);

}  // namespace zeepo
