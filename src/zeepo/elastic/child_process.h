// A process that this one starts, watches and ends.
//
// It has a process group of its own, so that a signal of the terminal reaches it only through its parent; it is told to
// end (SIGTERM) when this process dies. The destructor ends the whole group and waits.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace zeepo {

class ChildProcess {
 public:
  enum class Output {
    pass_stdout,  // stdout is this process's; stderr is read
    none,
  };
  // Throws Error when it cannot be started; a program that is not there ends with 127.
  ChildProcess(const std::vector<std::string>& command, Output output);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // What has come on stderr; waits for it, or the end, for this long at most.
  std::string read(int milliseconds);
  // The exit code, or 128 + the signal, once it has ended.
  std::optional<int> ended();
  void send(int signal);           // to the process
  void send_to_group(int signal);  // and what it has started

 private:
  pid_t process_ = -1;
  int stderr_ = -1;
  std::optional<int> ended_;
};

}  // namespace zeepo
