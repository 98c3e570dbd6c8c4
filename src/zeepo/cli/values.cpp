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

std::int64_t memory_option(const std::string& text) {
  if (text.empty()) return 0;
  constexpr std::string_view kDevice = "device=";
  if (!text.starts_with(kDevice) || text.find(',') != std::string::npos)
    throw UsageError("--memory {}: write device=SIZE, like device=4GiB; there are no other tiers yet", text);
  std::int64_t bytes = 0;
  try {
    bytes = parse_size(std::string_view(text).substr(kDevice.size()));
  } catch (const Error& error) {
    throw UsageError("--memory: {}", error.what());
  }
  if (bytes <= 0) throw UsageError("--memory {}: must be more than 0", text);
  return bytes;
}

void check_device(const std::string& text) {
  if (text != "cpu") throw UsageError("--device {}: this build computes on the CPU only; use --device cpu", text);
}

}  // namespace zeepo::cli
