#include "zeepo/base/stop_request.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <mutex>

#include "zeepo/base/partial_files.h"

namespace zeepo {
namespace {

constexpr std::array kSignals{SIGTERM, SIGINT, SIGHUP, SIGUSR1};
constexpr std::int64_t kSameRequestMs = 500;

// All that the handler uses.
std::atomic<int> noted{0};
std::atomic<std::int64_t> noted_at_ms{0};
std::array<std::atomic<int>, 2> watchers{};
std::atomic<unsigned> grace_seconds{0};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

std::mutex taking;
int takers = 0, grace_holders = 0;

std::atomic<int>& watchers_of(StopRequest::Watcher who) { return watchers[static_cast<std::size_t>(who)]; }

std::int64_t now_ms() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void handle(int signal) {
  const int kept = errno;
  int none = 0;
  const std::int64_t now = now_ms();
  const bool first = noted.compare_exchange_strong(none, signal);
  if (first) noted_at_ms = now;
  const bool watched = watchers[0] > 0 || watchers[1] > 0;
  if (!watched || (!first && now - noted_at_ms > kSameRequestMs)) StopRequest::end_process(signal);
  if (first && grace_seconds > 0) ::alarm(grace_seconds);
  errno = kept;
}

void end_of_grace(int) {
  static constexpr char kText[] = "zeepo: the time of --stop-grace is over: the process ends as it is\n";
  const ssize_t said = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  static_cast<void>(said);  // it ends in any case
  StopRequest::end_process(noted);
}

bool has_handler(int signal, void (*handler)(int)) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
         action.sa_handler == handler;
}

void set_handler(int signal, void (*handler)(int)) noexcept {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopRequest::Signals::Signals() {
  const std::lock_guard lock(taking);
  if (++takers > 1) return;
  noted = 0;
  for (const int signal : kSignals)
    if (has_handler(signal, SIG_DFL)) set_handler(signal, handle);
}

StopRequest::Signals::~Signals() {
  const std::lock_guard lock(taking);
  if (--takers > 0) return;
  for (const int signal : kSignals)
    if (has_handler(signal, handle)) set_handler(signal, SIG_DFL);
}

StopRequest::Watch::Watch(Watcher who) : who_(who) { ++watchers_of(who); }
StopRequest::Watch::~Watch() { --watchers_of(who_); }

StopRequest::Grace::Grace(std::int64_t seconds) : limited_(seconds > 0) {
  if (!limited_) return;
  const std::lock_guard lock(taking);
  set_handler(SIGALRM, end_of_grace);
  ++grace_holders;
  grace_seconds = static_cast<unsigned>(std::min<std::int64_t>(seconds, std::numeric_limits<int>::max()));
}

StopRequest::Grace::~Grace() {
  if (!limited_) return;
  const std::lock_guard lock(taking);
  if (--grace_holders > 0) return;
  grace_seconds = 0;
  ::alarm(0);
  set_handler(SIGALRM, SIG_DFL);
}

int StopRequest::signal() noexcept { return noted; }
bool StopRequest::watched_by(Watcher who) noexcept { return watchers_of(who) > 0; }

void StopRequest::end_process(int signal) noexcept {
  remove_partial_files();
  set_handler(signal, SIG_DFL);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, signal);  // in its own handler it is
  ::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

std::string name_of_signal(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace zeepo
