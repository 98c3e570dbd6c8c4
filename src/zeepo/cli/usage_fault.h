// A usage error in a job of several ranks: one message from rank 0, and exit code 2 on every rank.
#pragma once

#include <string>

#include "zeepo/comm/communicator.h"

namespace zeepo::cli {

inline constexpr int kUsageError = 2;

// All ranks call it, each with its own usage error or none. Returns where there is none on any rank; else rank 0 prints
// what is wrong, the job is finished, and all ranks throw CLI::RuntimeError with kUsageError.
void share_usage_fault(Communicator& ranks, const std::string& own);

// Before the ranks are connected: connects them for the purpose. Prints the message in any case.
void report_usage_fault(const std::string& message);

}  // namespace zeepo::cli
