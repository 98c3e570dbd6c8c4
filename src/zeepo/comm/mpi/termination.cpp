#include "zeepo/comm/mpi/termination.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>

namespace zeepo {
namespace {

std::atomic<bool> termination_requested{false};  // set by the handler, read by the heart
static_assert(std::atomic<bool>::is_always_lock_free);

void note_request(int) { termination_requested = true; }

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
  struct sigaction action {};
  if (sigaction(SIGTERM, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = note_request;
  action.sa_flags = SA_RESTART;
  installed_ = sigaction(SIGTERM, &action, nullptr) == 0;
}

void Termination::release() const {
  if (installed_) std::signal(SIGTERM, SIG_DFL);
}

bool Termination::requested() const { return termination_requested; }

std::string Termination::who_died() const {
  for (const LocalRank& local : local_ranks_)
    if (has_died(local.process)) return fmt::format(": rank {} (process {}) has died", local.rank, local.process);
  return {};
}

void Termination::end_process() const {
  std::signal(SIGTERM, SIG_DFL);
  std::raise(SIGTERM);
  std::_Exit(1);
}

}  // namespace zeepo
