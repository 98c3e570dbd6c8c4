#include "zeepo/base/control_group.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

namespace zeepo {
namespace {

namespace fs = std::filesystem;

// What the two versions call their files.
struct Version {
  std::string_view file_system;     // in mountinfo
  std::vector<const char*> limits;  // the lowest counts
  const char *used, *caches;        // caches: the line of memory.stat
  fs::path usual_mount;
};
const Version kVersion2{"cgroup2", {"memory.max", "memory.high"}, "memory.current", "inactive_file ", "sys/fs/cgroup"};
const Version kVersion1{
    "cgroup", {"memory.limit_in_bytes"}, "memory.usage_in_bytes", "total_inactive_file ", "sys/fs/cgroup/memory"};

bool lists(std::string_view comma_separated, std::string_view word) {
  for (std::size_t at = 0; at <= comma_separated.size();) {
    const auto end = std::min(comma_separated.find(',', at), comma_separated.size());
    if (comma_separated.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

// Of a line "5:cpu,memory:/slurm/job_7": version 2 has number 0 and no controllers.
std::optional<fs::path> own_group(const fs::path& root, const Version& version) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const bool unified = line.starts_with("0:") && controllers.empty();
    if (&version == &kVersion2 ? unified : lists(controllers, "memory")) return fs::path(line.substr(second + 1));
  }
  return std::nullopt;
}

struct Mount {
  fs::path top;    // the group that is mounted
  fs::path point;  // where
};

// "36 35 0:29 /top /point rw,nosuid shared:9 - cgroup2 cgroup2 rw,memory"
Mount mount_of(const fs::path& root, const Version& version) {
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const auto separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream before(line.substr(0, separator)), after(line.substr(separator + 3));
    std::string id, parent, device, top, point, type, source, options;
    if (!(before >> id >> parent >> device >> top >> point) || !(after >> type >> source >> options)) continue;
    if (type == version.file_system && (&version == &kVersion2 || lists(options, "memory")))
      return {top, root / fs::path(point).relative_path()};
  }
  return {"/", root / version.usual_mount};
}

// The group's path below the mount. What lies outside of it, as in a container that sees no more than its own group, is
// taken for the mount itself.
fs::path below(const fs::path& group, const fs::path& top) {
  const fs::path relative = group.lexically_relative(top);
  return relative.empty() || *relative.begin() == ".." || *relative.begin() == "." ? fs::path() : relative;
}

std::optional<MemoryGroup> read_group(const fs::path& directory, const Version& version) {
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  for (const char* name : version.limits)
    if (const auto bytes = number_in(directory / name); bytes && *bytes >= 0) limit = std::min(limit, *bytes);
  if (limit == std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  const auto used = number_in(directory / version.used).value_or(0);
  const auto caches = number_after(directory / "memory.stat", version.caches).value_or(0);
  return MemoryGroup{limit, std::max<std::int64_t>(0, used - caches)};
}

}  // namespace

std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  if (!file.is_open()) return {};
  std::string text;
  std::int64_t value = 0;
  if (!(file >> text) || std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return {};
  return value;
}

// With C's files: where no handle is left the sanitizers cannot look at objects with virtual functions.
std::optional<std::int64_t> number_after(const fs::path& path, const std::string& key) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (!file) return {};
  for (char line[512]; std::fgets(line, sizeof line, file.get()) != nullptr;) {
    if (std::strncmp(line, key.c_str(), key.size()) != 0) continue;
    char* end = nullptr;
    const long long value = std::strtoll(line + key.size(), &end, 10);
    if (end != line + key.size()) return value;
  }
  return {};
}

std::vector<MemoryGroup> memory_groups(const fs::path& root) {
  std::vector<MemoryGroup> groups;
  for (const Version* version : {&kVersion2, &kVersion1}) {
    const Mount mount = mount_of(root, *version);
    fs::path group = below(own_group(root, *version).value_or("/"), mount.top);
    for (bool more = true; more; group = group.parent_path()) {
      if (const auto read = read_group(mount.point / group, *version)) groups.push_back(*read);
      more = !group.empty();
    }
  }
  return groups;
}

}  // namespace zeepo
