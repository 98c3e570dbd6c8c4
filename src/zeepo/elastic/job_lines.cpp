#include "zeepo/elastic/job_lines.h"

#include <algorithm>
#include <array>

namespace zeepo {
namespace {

// Of zeepo's heartbeat, and of Open MPI's launcher and transport.
constexpr std::array<std::string_view, 9> kLosses{"has been silent for",
                                                  "has died",
                                                  "exited on signal",
                                                  "has lost communication with a remote daemon",
                                                  "daemon has unexpectedly failed",
                                                  "unable to reliably start one or more daemons",
                                                  "peer process has unexpectedly disconnected",
                                                  "failed to TCP connect to a peer MPI process",
                                                  "Connection reset by peer"};
// After which a job does nothing more.
constexpr std::array<std::string_view, 3> kEnds{"has been silent for", "MPI_ABORT was invoked",
                                                "has lost communication with a remote daemon"};
constexpr std::string_view kSpeaker = "zeepo: rank ";
constexpr std::string_view kTaken = "another run writes its checkpoints there";
constexpr std::size_t kLongestLine = 1 << 16;  // of a line; the rest of a longer one is left out

}  // namespace

void JobLines::add(std::string_view text) {
  if (!text.empty()) any_ = true;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    line_.append(text.substr(0, std::min(end, kLongestLine - std::min(kLongestLine, line_.size()))));
    if (end == text.size()) return;
    look_at(line_);
    line_.clear();
    text.remove_prefix(end + 1);
  }
}

void JobLines::look_at(std::string_view line) {
  const auto says = [&](std::string_view what) { return line.find(what) != line.npos; };
  if (says(kTaken)) directory_taken_ = true;
  if (std::ranges::any_of(kEnds, says)) ending_ = true;
  if (!loss_.empty() || !std::ranges::any_of(kLosses, says)) return;
  // "zeepo: rank 0: rank 2 on host node3 has been silent for 10 s while ...": up to the reason.
  if (const std::size_t from = line.find(": rank ", kSpeaker.size()); line.starts_with(kSpeaker) && from != line.npos)
    line.remove_prefix(from + 2);
  loss_ = line.substr(0, std::min(line.find(" while "), line.size()));
}

}  // namespace zeepo
