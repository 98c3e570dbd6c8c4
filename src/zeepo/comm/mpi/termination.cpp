#include "zeepo/comm/mpi/termination.h"

#include <fmt/format.h>

#include <fstream>

namespace zeepo {
namespace {

// Gone, or a zombie that its parent has not yet read.
bool has_died(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  if (!std::getline(file, text)) return true;
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'Z';
}

}  // namespace

Termination::Termination(const std::vector<LocalRank>& local_ranks) {
  for (const LocalRank& local : local_ranks)  // ranks in containers of their own are not to be seen
    if (!has_died(local.process)) local_ranks_.push_back(local);
  signals_.emplace();
  watch_.emplace(StopRequest::Watcher::heartbeat);
}

void Termination::release() {
  watch_.reset();
  signals_.reset();
}

std::string Termination::who_died() const {
  for (const LocalRank& local : local_ranks_)
    if (has_died(local.process)) return fmt::format(": rank {} (process {}) has died", local.rank, local.process);
  return {};
}

}  // namespace zeepo
