// What a run tells of a step: an event for programs, a line or one moving line for people.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "zeepo/memory/tier.h"
#include "zeepo/zero/engine_options.h"

namespace zeepo {

// JSON has no infinity and no NaN: they are written as null.
nlohmann::ordered_json json_number(double value);

struct StepReport {
  std::int64_t step, tokens;
  StepResult result;
  double lr, seconds, tokens_per_second, tflops;
  Stalls stalls;                                           // of this rank's compute
  std::optional<std::int64_t> loss_tokens = std::nullopt;  // targets that count, where not all of them do
  std::array<Usage, kPlaces.size()> memory = {};           // of this rank, the peaks since the step before
};
nlohmann::ordered_json to_json(const StepReport& report);
// A NaN's sign says nothing to people.
float unsigned_nan(float value);

// On a terminal one line that is written over, with the time left; elsewhere a line a step. To stderr.
class Progress {
 public:
  // `before`: steps that an earlier process has done, which took no time of this one.
  explicit Progress(std::int64_t steps, std::int64_t before = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(const StepReport& report);
  // A line of its own.
  void say(const std::string& line);

 private:
  std::int64_t steps_, before_;
  bool terminal_, open_line_ = false;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace zeepo
