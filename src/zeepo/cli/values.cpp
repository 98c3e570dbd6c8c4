#include "zeepo/cli/values.h"

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo::cli {

DType dtype_option(const std::string& option, const std::string& text) {
  try {
    return parse_dtype(text);
  } catch (const Error& error) {
    throw UsageError("{}: {}", option, error.what());
  }
}

std::int64_t size_option(const std::string& option, const std::string& text) {
  try {
    return parse_size(text);
  } catch (const Error& error) {
    throw UsageError("{}: {}", option, error.what());
  }
}

std::int64_t memory_option(const std::string& text) {
  if (text.empty()) return 0;
  constexpr std::string_view kDevice = "device=";
  if (!text.starts_with(kDevice) || text.find(',') != std::string::npos)
    throw UsageError("--memory {}: write device=SIZE, like device=4GiB; there are no other tiers yet", text);
  const std::int64_t bytes = size_option("--memory", text.substr(kDevice.size()));
  if (bytes <= 0) throw UsageError("--memory {}: must be more than 0", text);
  return bytes;
}

void check_device(const std::string& text) {
  if (text != "cpu") throw UsageError("--device {}: this build computes on the CPU only; use --device cpu", text);
}

}  // namespace zeepo::cli
