#include "zeepo/base/machine.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

std::int64_t usable_memory_bytes() {
  std::int64_t bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(path);
    std::string text;
    std::int64_t limit = 0;
    if (file >> text && std::from_chars(text.data(), text.data() + text.size(), limit).ec == std::errc{} && limit > 0)
      bytes = std::min(bytes, limit);
  }
  return bytes;
}

std::int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  throw Error("/proc/self/status has no VmHWM line");
}

}  // namespace zeepo
