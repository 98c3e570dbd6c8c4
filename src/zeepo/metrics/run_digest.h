// A run in a page of text: its steps, losses, speed, stalls, memory, and what happened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

class RunDigest {
 public:
  // The events that count: where steps were done again, the later ones alone.
  void take(const Event& event);
  // Lines of text. What is not known is left out.
  std::string text() const;
  std::int64_t steps() const { return steps_; }

 private:
  struct Loss {
    std::int64_t step;
    double value;
  };
  struct Losses {
    std::optional<Loss> first, last, best;
    std::int64_t count = 0, not_finite = 0;
    void add(std::int64_t step, const Event& event);
    std::string text() const;
  };
  struct Happened {
    std::int64_t count = 0, last_step = 0;
    std::string last_text;
    std::string text(const char* one, const char* many) const;
  };

  void take_step(const Event& event);
  std::string plan_text() const;
  std::string speed_text() const;
  std::string stall_text() const;
  std::string memory_text() const;
  std::string end_text() const;

  std::int64_t steps_ = 0, first_step_ = 0, last_step_ = 0;
  double tokens_ = 0, seconds_ = 0;
  Losses losses_, evaluations_;
  std::vector<float> tokens_per_second_;                         // of each step
  std::map<std::string, double> stalls_;                         // seconds, by what for
  std::map<std::string, std::map<std::string, double>> memory_;  // peaks: tier, kind
  Happened checkpoints_, faults_, resumes_, stops_;
  Event plan_, summary_;  // null: none
};

}  // namespace zeepo
