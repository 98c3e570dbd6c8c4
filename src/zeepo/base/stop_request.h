// A signal that asks this process to end: SIGTERM, SIGINT, SIGHUP, or SIGUSR1, which mpirun passes on to all ranks and
// Slurm sends before the time of a job is up.
//
// While a StopRequest::Signals lives, such a signal first has the partial files removed (partial_files.h), then ends
// the process as it would have without. Where somebody watches, the first signal is only noted: a watcher promises to
// look at signal() soon, to stop where it can and to end the process. A second signal ends the process at once; one
// that comes within half a second counts as the same, since some launchers send two.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "zeepo/base/error.h"

namespace zeepo {

class StopRequest {
 public:
  // Takes the four signals where they have their default action: what is ignored (nohup) or handled by somebody else
  // stays so. The last one to go gives the signals back.
  class Signals {
   public:
    Signals();
    ~Signals();
    Signals(const Signals&) = delete;
    Signals& operator=(const Signals&) = delete;
  };

  enum class Watcher { heartbeat, work };  // of the ranks; between steps
  class Watch {
   public:
    explicit Watch(Watcher who);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    const Watcher who_;
  };

  // As long as one lives, a first signal that is only noted leaves the process this many seconds: then it ends as by a
  // second one. 0: no limit. Takes SIGALRM.
  class Grace {
   public:
    explicit Grace(std::int64_t seconds);
    ~Grace();
    Grace(const Grace&) = delete;
    Grace& operator=(const Grace&) = delete;

   private:
    const bool limited_;
  };

  // The first signal that has come, 0: none. Any thread may ask.
  static int signal() noexcept;
  static bool watched_by(Watcher who) noexcept;
  // Removes the partial files and ends the process by this signal. Async-signal-safe: what stdio holds is not written.
  [[noreturn]] static void end_process(int signal) noexcept;
};

// "SIGTERM"
std::string name_of_signal(int signal);

// Thrown where the work has stopped because of a signal, to this process or to another rank; who catches it last ends
// the process by StopRequest::end_process. As long as it lives the signal counts as watched.
class Stopped : public Error {
 public:
  template <class... Args>
  explicit Stopped(int signal, std::optional<int> exit_code, fmt::format_string<Args...> format, Args&&... args)
      : Error(format, std::forward<Args>(args)...),
        signal_(signal),
        exit_code_(exit_code),
        watch_(std::make_shared<StopRequest::Watch>(StopRequest::Watcher::work)) {}
  int signal() const { return signal_; }
  // What the process ends with where that is not the signal: the work has been saved.
  std::optional<int> exit_code() const { return exit_code_; }

 private:
  int signal_;
  std::optional<int> exit_code_;
  std::shared_ptr<const StopRequest::Watch> watch_;
};

}  // namespace zeepo
