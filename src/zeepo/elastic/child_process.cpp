#include "zeepo/elastic/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr int kNotFound = 127;

// Where SIGCHLD is ignored, as a parent of this process may leave it, the kernel tells nobody how a child has ended.
void ask_for_exit_codes() {
  struct sigaction action {};
  if (::sigaction(SIGCHLD, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) ::signal(SIGCHLD, SIG_DFL);
}

// Between fork and exec: async-signal-safe calls alone.
[[noreturn]] void become(char* const* command, int out, int err, pid_t parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotFound);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE}) ::signal(signal, SIG_DFL);
  const int null = ::open("/dev/null", O_RDWR);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out < 0 ? null : out, STDOUT_FILENO);
  ::dup2(err < 0 ? null : err, STDERR_FILENO);
  ::execvp(command[0], command);
  if (err >= 0) {
    (void)!::write(STDERR_FILENO, command[0], std::strlen(command[0]));
    (void)!::write(STDERR_FILENO, ": cannot be started\n", 20);
  }
  ::_exit(kNotFound);
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command, Output output) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> pipe{-1, -1};
  if (output == Output::pass_stdout && ::pipe2(pipe.data(), O_CLOEXEC) != 0)
    throw Error("{}: cannot be started: {}", command[0], std::strerror(errno));
  ask_for_exit_codes();
  const pid_t parent = ::getpid();
  process_ = ::fork();
  if (process_ == 0) become(words.data(), output == Output::none ? -1 : STDOUT_FILENO, pipe[1], parent);
  const int cause = errno;
  if (pipe[1] >= 0) ::close(pipe[1]);
  stderr_ = pipe[0];
  if (process_ > 0) {
    ::setpgid(process_, process_);
    return;
  }
  if (stderr_ >= 0) ::close(stderr_);
  throw Error("{}: cannot be started: {}", command[0], std::strerror(cause));
}

ChildProcess::~ChildProcess() {
  send_to_group(SIGKILL);
  while (!ended()) ::poll(nullptr, 0, 5);
  if (stderr_ >= 0) ::close(stderr_);
}

std::string ChildProcess::read(int milliseconds) {
  pollfd wait{stderr_, POLLIN, 0};
  if (stderr_ < 0) {
    ::poll(nullptr, 0, milliseconds);
    return {};
  }
  if (::poll(&wait, 1, milliseconds) <= 0) return {};
  std::array<char, 1 << 16> buffer;
  const ssize_t got = ::read(stderr_, buffer.data(), buffer.size());
  if (got > 0) return {buffer.data(), static_cast<std::size_t>(got)};
  if (got == 0 || errno != EINTR) {  // nobody writes there any more
    ::close(stderr_);
    stderr_ = -1;
  }
  return {};
}

std::optional<int> ChildProcess::ended() {
  int status = 0;
  if (!ended_ && ::waitpid(process_, &status, WNOHANG) == process_)
    ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended_;
}

void ChildProcess::send(int signal) {
  if (!ended_) ::kill(process_, signal);
}

void ChildProcess::send_to_group(int signal) { ::kill(-process_, signal); }

}  // namespace zeepo
