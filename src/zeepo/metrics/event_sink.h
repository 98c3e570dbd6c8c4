// What takes the events of a run: a log, a table, a page.
//
// An event is a JSON object with its kind in "event" ("step", "eval", "checkpoint", ...), as `--log` has it a line. A
// sink picks the events and the fields that it knows how to show; new kinds and new fields must not disturb it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace zeepo {

using Event = nlohmann::ordered_json;

class EventSink {
 public:
  virtual ~EventSink() = default;
  // As warnings name it: "--csv run.csv".
  virtual std::string name() const = 0;
  // Complete, wherever it goes, when this returns. Throws Error, with the cause alone, when it cannot be taken.
  virtual void write(const Event& event) = 0;
  // Whether the next event may succeed after one has failed: each replaces what was there before.
  virtual bool recovers() const { return false; }
};

// JSON with its newline. Bytes that are no UTF-8 (in the name of a file) become U+FFFD.
std::string line_of(const Event& event);
// The kind of an event; empty where there is none.
std::string kind_of(const Event& event);
// The step of an event; 0 where there is none.
std::int64_t step_of(const Event& event);

}  // namespace zeepo
