// The built program as a user runs it: its exit code and what it wrote.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/test_directory.h"

namespace zeepo {

struct Finished {
  int code = -1;  // -signal when it was killed
  std::string out, err;
};

struct Limits {
  long file_bytes = 0;           // no file may grow past this; 0: no limit
  std::string stdout_path = {};  // where stdout goes instead
  long processes = 0;            // and threads, of a user of its own where the limit would not bind root; 0: no limit
  long address_space = 0;        // bytes; 0: no limit
  unsigned seconds = 0;          // SIGALRM ends it after these; 0: never
};

// Instead of the program's exit code: a limit could not be set, or that user may not read the program.
inline constexpr int kUnlimited = 126, kNotStarted = 127;

inline bool limit_to(long most, int resource) {
  const rlimit limit{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  return most == 0 || ::setrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0;
}

// RLIMIT_NPROC counts all threads of a user, and binds no superuser.
inline bool limit_processes(long most) {
  constexpr unsigned kStranger = 54322;
  if (most > 0 && ::getuid() == 0 && (::setgid(kStranger) != 0 || ::setuid(kStranger) != 0)) return false;
  return limit_to(most, RLIMIT_NPROC);
}

inline std::string whole_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Runs `program` with these arguments. Its output goes through files beside it, which no pipe's size limits.
inline Finished run_program(const std::string& program, const std::vector<std::string>& arguments,
                            const Limits& limits = {}) {
  const TestDirectory directory;
  const std::string out = directory.path() / "out", err = directory.path() / "err";
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  const pid_t child = ::fork();
  if (child == 0) {
    const std::string& stdout_path = limits.stdout_path.empty() ? out : limits.stdout_path;
    const int out_file = ::open(stdout_path.c_str(), O_WRONLY | O_CREAT, 0600),
              err_file = ::open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(out_file, STDOUT_FILENO);
    ::dup2(err_file, STDERR_FILENO);
    ::close(STDIN_FILENO);
    if (!limit_to(limits.file_bytes, RLIMIT_FSIZE) || !limit_to(limits.address_space, RLIMIT_AS) ||
        !limit_processes(limits.processes))
      ::_exit(kUnlimited);
    ::alarm(limits.seconds);
    ::execv(program.c_str(), argv.data());
    ::_exit(kNotStarted);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), whole_file(out), whole_file(err)};
}

}  // namespace zeepo
