// Options whose text means something: sizes, dtypes, devices, budgets.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"
#include "zeepo/device/stream.h"
#include "zeepo/memory/tier.h"
#include "zeepo/zero/placement.h"

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
// "device=4GiB,host=8GiB,nvme=100GB": budgets in bytes; 0 where none is given.
struct Budgets {
  std::int64_t device = 0, host = 0, nvme = 0;
};
Budgets memory_option(const std::string& text);
// "none", "host" or "nvme".
Place place_option(const std::string& option, const std::string& text);
// The same, or a share of each place: "host=0.5,nvme=0.3". The rest stays on the device.
Shares shares_option(const std::string& option, const std::string& text);
// "auto" (nothing), "host" (1), "device" (0), or a share from 0 to 1.
std::optional<double> host_share_option(const std::string& option, const std::string& text);
// "ranks=1GB/s,host-device=8GB/s,nvme=500MB/s": bytes a second of each link that is to be slow; 0 for the others.
struct SimulatedLinks {
  double ranks = 0, host_device = 0, nvme = 0;
};
SimulatedLinks links_option(const std::string& text);
// "A,B,C"
std::vector<std::string> split_at_commas(const std::string& text);
// "cpu" or "cuda"; empty: cuda where there is one.
Backend device_option(const std::string& text);
// Of --dtype; empty: bf16 on a GPU, else fp32.
DType dtype_or_default(const std::string& text, Backend backend);

}  // namespace zeepo::cli
