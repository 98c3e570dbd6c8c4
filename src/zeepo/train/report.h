// What a run tells: JSON lines for programs, lines or one moving line for people.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "zeepo/zero/engine_options.h"

namespace zeepo {

// Events as JSON lines, each complete in the file before the next step starts.
//
// A log that cannot be written (its disk is full) is said once and ends there; the run goes on, and check() tells at
// its end.
class EventLog {
 public:
  enum class Mode { fresh, append };
  // A path, "-" for stdout, empty for nothing. Throws Error when the file cannot be made, or is a FIFO that nobody
  // reads.
  explicit EventLog(const std::string& target, Mode mode = Mode::fresh);
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;
  void write(const nlohmann::ordered_json& event);
  // Throws Error when not all events have been written.
  void check() const;

 private:
  std::string target_, failure_;
  std::FILE* file_ = nullptr;
};

struct StepReport {
  std::int64_t step, tokens;
  StepResult result;
  double lr, seconds, tokens_per_second, tflops;
  Stalls stalls;                                           // of this rank's compute
  std::optional<std::int64_t> loss_tokens = std::nullopt;  // targets that count, where not all of them do
};
nlohmann::ordered_json to_json(const StepReport& report);

// On a terminal one line that is written over, with the time left; elsewhere a line a step. To stderr.
class Progress {
 public:
  explicit Progress(std::int64_t steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(const StepReport& report);
  // A line of its own.
  void say(const std::string& line);

 private:
  std::int64_t steps_;
  bool terminal_, open_line_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace zeepo
