// A program that is still running: to be looked at, sent signals and waited for.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/subprocess.h"

namespace zeepo {

// Asks every few hundred microseconds; false when it does not come true within half a minute.
template <class F>
bool becomes_true(F&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

class RunningProgram {
 public:
  RunningProgram(const std::string& program, const std::vector<std::string>& arguments) {
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    process_ = ::fork();
    if (process_ != 0) return;
    const int out_file = ::open(out().c_str(), O_WRONLY | O_CREAT, 0600),
              err_file = ::open(err().c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(out_file, STDOUT_FILENO);
    ::dup2(err_file, STDERR_FILENO);
    ::close(STDIN_FILENO);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) std::signal(signal, SIG_DFL);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ~RunningProgram() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t process() const { return process_; }
  void send(int signal) const { ::kill(process_, signal); }
  std::string said() const { return whole_file(err()); }
  // It must end within half a minute.
  Finished wait() {
    int status = 0;
    EXPECT_TRUE(becomes_true([&] { return ::waitpid(process_, &status, WNOHANG) == process_; })) << said();
    if (!WIFEXITED(status) && !WIFSIGNALED(status)) return {};
    process_ = 0;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), whole_file(out()), whole_file(err())};
  }

 private:
  std::string out() const { return directory_.path() / "out"; }
  std::string err() const { return directory_.path() / "err"; }

  const TestDirectory directory_;
  pid_t process_ = 0;
};

// All names in the directory and below that say `partial`.
inline std::vector<std::string> partial_files_in(const std::filesystem::path& directory) {
  std::vector<std::string> found;
  std::error_code gone;  // files may come and go meanwhile
  for (std::filesystem::recursive_directory_iterator file(directory, gone), end; !gone && file != end;
       file.increment(gone))
    if (file->path().string().find("partial") != std::string::npos) found.push_back(file->path().string());
  return found;
}

}  // namespace zeepo
