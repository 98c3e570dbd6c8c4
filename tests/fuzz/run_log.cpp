// A log of a run: what a killed or a foreign program has left of it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "zeepo/metrics/run_log.h"
#include "zeepo/metrics/run_page.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const zeepo::RunLog log = zeepo::read_run_log([&](const std::function<void(std::string_view, bool)>& take) {
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t end = rest.find('\n');
      take(rest.substr(0, end), end != std::string_view::npos);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
  });
  if (log.digest.text().empty() || zeepo::run_page("log", log.history).empty()) __builtin_trap();
  return 0;
}
