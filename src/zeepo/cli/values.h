// Options whose text means something: sizes, dtypes, devices, budgets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"

namespace zeepo::cli {

inline constexpr int kMaxThreads = 1024;

// All throw UsageError naming the option and the value.
template <class T>
T choice_option(const std::string& option, const std::string& text, const std::map<std::string, T>& choices) {
  if (const auto found = choices.find(text); found != choices.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) names.push_back(name);
  throw UsageError("{} {}: must be one of {}", option, text, fmt::join(names, ", "));
}
DType dtype_option(const std::string& option, const std::string& text);
std::int64_t size_option(const std::string& option, const std::string& text);
// "device=4GiB": the device budget; 0 where the text is empty. Budgets of other tiers are refused.
std::int64_t memory_option(const std::string& text);
// Only the CPU is there yet.
void check_device(const std::string& text);

}  // namespace zeepo::cli
