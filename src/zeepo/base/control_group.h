// The control groups whose memory limits bind this process: its own and all above it, version 1 and 2.
//
// Slurm, systemd and containers set limits on any of these. /proc/self/cgroup names the own group, /proc/self/mountinfo
// says where groups are mounted. `root` is "/" but in tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

namespace zeepo {

struct MemoryGroup {
  std::int64_t limit_bytes = 0;
  std::int64_t used_bytes = 0;  // caches that give way are not counted
};

// Those with a limit, the process's own first. Groups that cannot be read are left out.
std::vector<MemoryGroup> memory_groups(const std::filesystem::path& root = "/");

// The number that a file of the kernel starts with; nothing where there is no such file, or it says "max".
std::optional<std::int64_t> number_in(const std::filesystem::path& file);
// The number after `key` at the start of a line, as in "MemAvailable:   12345 kB"; nothing where there is none.
std::optional<std::int64_t> number_after(const std::filesystem::path& file, const std::string& key);

}  // namespace zeepo
