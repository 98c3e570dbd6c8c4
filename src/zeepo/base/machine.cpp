#include "zeepo/base/machine.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

namespace {

// The number that a file of the kernel consists of; nothing where there is no such file, or it says "max".
std::optional<std::int64_t> number_in(const char* path) {
  std::ifstream file(path);
  std::string text;
  std::int64_t value = 0;
  if (!(file >> text) || std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return {};
  return value;
}

// That a line like "MemAvailable:   12345 kB" or "inactive_file 12345" gives; nothing where there is none.
std::optional<std::int64_t> number_after(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(key.size()));
  return {};
}

// Of a control group, version 2 and 1.
struct Group {
  const char *limit, *used, *details, *cache;
};
constexpr std::array kGroups{
    Group{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file "},
    Group{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
          "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file "}};

}  // namespace

std::int64_t usable_memory_bytes() {
  std::int64_t bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE);
  for (const Group& group : kGroups)
    if (const auto limit = number_in(group.limit); limit && *limit > 0) bytes = std::min(bytes, *limit);
  return bytes;
}

std::int64_t free_memory_bytes() {
  const auto available = number_after("/proc/meminfo", "MemAvailable:");
  if (!available) throw Error("/proc/meminfo has no MemAvailable line");
  std::int64_t bytes = *available * 1024;
  for (const Group& group : kGroups) {
    const auto limit = number_in(group.limit), used = number_in(group.used);
    if (!limit || !used || *limit <= 0) continue;
    const std::int64_t gives_way = number_after(group.details, group.cache).value_or(0);
    bytes = std::min(bytes, std::max<std::int64_t>(0, *limit - *used + gives_way));
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
