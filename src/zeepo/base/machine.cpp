#include "zeepo/base/machine.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include "zeepo/base/control_group.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

std::int64_t memory_line(const std::filesystem::path& root, const char* key) {
  const auto path = root / "proc/meminfo";
  errno = 0;
  const auto kibibytes = number_after(path, key);
  if (!kibibytes && errno != 0) throw Error("cannot read {}: {}", path.string(), std::strerror(errno));
  if (!kibibytes) throw Error("{} has no {} line", path.string(), key);
  return *kibibytes * 1024;
}

}  // namespace

std::int64_t usable_memory_bytes(const std::filesystem::path& root) {
  std::int64_t bytes = memory_line(root, "MemTotal:");
  for (const MemoryGroup& group : memory_groups(root)) bytes = std::min(bytes, group.limit_bytes);
  return bytes;
}

std::int64_t free_memory_bytes(const std::filesystem::path& root) {
  std::int64_t bytes = memory_line(root, "MemAvailable:");
  for (const MemoryGroup& group : memory_groups(root))
    bytes = std::min(bytes, std::max<std::int64_t>(0, group.limit_bytes - group.used_bytes));
  return bytes;
}

std::int64_t free_disk_bytes(const std::vector<std::filesystem::path>& directories) {
  std::int64_t bytes = 0;
  std::set<dev_t> counted;
  for (const auto& directory : directories) {
    struct stat status {};
    struct statvfs room {};
    if (::stat(directory.c_str(), &status) != 0 || ::statvfs(directory.c_str(), &room) != 0)
      throw Error("cannot ask for the free space of {}: {}", directory.string(), std::strerror(errno));
    if (!counted.insert(status.st_dev).second) continue;
    bytes += static_cast<std::int64_t>(room.f_bavail) * static_cast<std::int64_t>(room.f_frsize);
  }
  return bytes;
}

std::int64_t peak_resident_bytes() {
  if (const auto kibibytes = number_after("/proc/self/status", "VmHWM:")) return *kibibytes * 1024;
  // Where no file can be opened any more. It may count what this process was before it became zeepo (execve).
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) throw Error("cannot ask for the peak memory: {}", std::strerror(errno));
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace zeepo
