// A run in a page of text: its steps, losses, speed, stalls, memory, and what happened.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

// One number or text that runs have in common.
struct RunFigure {
  enum class Unit { count, rate, seconds, bytes, loss, text };
  std::string key;   // as programs read it
  std::string name;  // as people do
  Unit unit;
  double value;
  std::string text;  // of Unit::text
};

class RunDigest {
 public:
  struct Loss {
    std::int64_t step;
    double value;
  };

  // The events that count: where steps were done again, the later ones alone.
  void take(const Event& event);
  // Lines of text. What is not known is left out.
  std::string text() const;
  std::int64_t steps() const { return steps_; }
  // What is known, in an order that is the same for all runs.
  std::vector<RunFigure> figures() const;
  // Of each step, in the order of the log.
  const std::vector<Loss>& losses() const { return losses_.all; }
  // Null where the log has none.
  const Event& plan() const { return plan_; }
  // The most that any rank held of a tier, of a kind or in "total"; not a number where that is not known.
  double peak_bytes(const char* tier, const char* kind) const;
  // Over all steps, in seconds: what was waited for; and all of it.
  const std::map<std::string, double>& stalls() const { return stalls_; }
  double seconds() const { return seconds_; }
  // Of a step; not a number where no step has told.
  double median_seconds() const;

 private:
  struct Losses {
    std::optional<Loss> first, last, best;
    std::vector<Loss> all;
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
  double sent_by_ranks(const char* group, const char* name) const;
  double median_speed() const;
  std::string plan_text() const;
  std::string speed_text() const;
  std::string stall_text() const;
  std::string memory_text() const;
  std::string end_text() const;

  std::int64_t steps_ = 0, first_step_ = 0, last_step_ = 0;
  double tokens_ = 0, seconds_ = 0;
  Losses losses_, evaluations_;
  std::vector<float> tokens_per_second_, step_seconds_;          // of each step
  std::map<std::string, double> stalls_;                         // seconds, by what for
  std::map<std::string, std::map<std::string, double>> memory_;  // peaks: tier, kind
  Happened checkpoints_, faults_, resumes_, stops_;
  Event plan_, summary_;  // null: none
};

}  // namespace zeepo
