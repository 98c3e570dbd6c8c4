// Options whose text means something: sizes, dtypes, devices, budgets.
#pragma once

#include <cstdint>
#include <string>

#include "zeepo/base/dtype.h"

namespace zeepo::cli {

inline constexpr int kMaxThreads = 1024;

// All throw UsageError naming the option and the value.
DType dtype_option(const std::string& option, const std::string& text);
std::int64_t size_option(const std::string& option, const std::string& text);
// "device=4GiB": the device budget; 0 where the text is empty. Budgets of other tiers are refused.
std::int64_t memory_option(const std::string& text);
// Only the CPU is there yet.
void check_device(const std::string& text);

}  // namespace zeepo::cli
