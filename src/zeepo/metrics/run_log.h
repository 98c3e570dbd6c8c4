// A run as its log tells it: the file of `--log`, whatever has become of it.
//
// A run that was killed may have left half a line, which is counted and passed over, like every line that is no event.
// A run that was resumed has done some steps again; of these the later ones count. The file is read twice, in pieces:
// its size does not matter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "zeepo/metrics/run_digest.h"
#include "zeepo/metrics/run_history.h"

namespace zeepo {

struct RunLog {
  RunHistory history;
  RunDigest digest;
  std::int64_t lines = 0;
  std::int64_t damaged_lines = 0;  // no JSON, or no event
  bool ends_in_a_line = false;     // the last line has no end: the run was killed while it wrote, or it writes now
  std::int64_t repeated_steps = 0;
};

inline constexpr std::size_t kMostLineBytes = 64 << 20;  // of a log; longer ones are damaged

// Gives each line, without its newline, to a function, and whether it has one; the same lines whenever it is called.
using EachLine = std::function<void(const std::function<void(std::string_view line, bool whole)>&)>;

RunLog read_run_log(const EachLine& each_line);
// Throws Error when the file cannot be read, or holds no event of a run.
RunLog read_run_log(const std::filesystem::path& path);

}  // namespace zeepo
