// The end of a job that has failed.
#pragma once

#include <string>

namespace zeepo {

// Where the ranks of a job are. On several hosts the launcher may wait for one that is gone.
enum class Spread { one_host, several_hosts };

// Prints one line with the rank and the message, lets the other ranks print theirs, and ends all of them.
[[noreturn]] void abort_mpi(int rank, const std::string& message, Spread spread);

}  // namespace zeepo
