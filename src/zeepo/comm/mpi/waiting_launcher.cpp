#include "zeepo/comm/mpi/waiting_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace zeepo {
namespace {

constexpr std::array kLaunchers{"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"};

// $1 is the launcher, $2 its name: the number may have passed to another process. A daemon that is told to end removes
// its files. mpirun, which is ending already, would crash: its files are removed here.
constexpr const char* kScript = R"sh(
there() { [ "$(cat "/proc/$1/comm" 2>/dev/null)" = "$2" ]; }
within() { n=$3; while [ "$n" -gt 0 ]; do there "$1" "$2" || exit 0; n=$((n - 1)); sleep 0.2; done; }
within "$1" "$2" 30
case $2 in
  *d) kill -TERM "$1"; within "$1" "$2" 15 ;;
esac
kill -KILL "$1"
files=${TMPDIR:-/tmp}/ompi.$(uname -n).$(id -u)
rm -rf "$files/pid.$1" && rmdir "$files"
)sh";

std::string name_of_process(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/comm", process));
  std::string name;
  std::getline(file, name);
  return name;
}

// In a session of its own, and without this process's files: the launcher ends groups, and waits for pipes to close.
void start_apart(const char* const* command) {
  posix_spawnattr_t how;
  posix_spawn_file_actions_t files;
  if (::posix_spawnattr_init(&how) != 0) return;
  if (::posix_spawn_file_actions_init(&files) == 0) {
    ::posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
      ::posix_spawn_file_actions_addopen(&files, file, "/dev/null", O_RDWR, 0);
    ::posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    pid_t started = 0;
    (void)::posix_spawn(&started, command[0], &files, &how, const_cast<char* const*>(command), environ);
    ::posix_spawn_file_actions_destroy(&files);
  }
  ::posix_spawnattr_destroy(&how);
}

}  // namespace

void end_waiting_launcher() noexcept {
  try {
    const pid_t launcher = ::getppid();
    const std::string name = name_of_process(launcher), number = fmt::format("{}", launcher);
    if (std::ranges::find(kLaunchers, name) == kLaunchers.end()) return;
    const char* const command[] = {"/bin/sh", "-c", kScript, "sh", number.c_str(), name.c_str(), nullptr};
    start_apart(command);
  } catch (const std::exception&) {
    // Without memory for this: the launcher ends when it finds out by itself.
  }
}

}  // namespace zeepo
