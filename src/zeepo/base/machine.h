// What this machine has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace zeepo {

// Memory that this process may use: the machine's, or the lowest limit of its control group and those above, where that
// is lower (control_group.h). `root` is "/" but in tests.
std::int64_t usable_memory_bytes(const std::filesystem::path& root = "/");
// What of it is free now, or held by caches that give way.
std::int64_t free_memory_bytes(const std::filesystem::path& root = "/");
// What is free on the file systems of these directories, each counted once however many directories it has. Throws
// Error naming a directory that cannot be asked.
std::int64_t free_disk_bytes(const std::vector<std::filesystem::path>& directories);
// The largest resident memory of this process so far (VmHWM). Needs no file handle.
std::int64_t peak_resident_bytes();

}  // namespace zeepo
