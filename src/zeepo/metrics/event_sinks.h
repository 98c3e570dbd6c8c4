// The sinks of a run, each of which gets every event.
//
// A sink that fails (its disk is full) does not end the run: a warning says so once, the other sinks get a fault event,
// and check() tells at the end of the run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

class EventSinks {
 public:
  void add(std::unique_ptr<EventSink> sink) { sinks_.push_back({std::move(sink), {}, false}); }
  // Whether nobody would see an event.
  bool empty() const { return sinks_.empty(); }
  void write(const Event& event);
  // Throws Error naming the sinks that have not got every event.
  void check() const;

 private:
  struct Listed {
    std::unique_ptr<EventSink> sink;
    std::string failure;  // of the last event; empty: none
    bool warned;
  };
  // The fault event of a sink that fails for the first time; else null.
  static Event write_to(Listed& listed, const Event& event, std::int64_t step);

  std::vector<Listed> sinks_;
  std::int64_t step_ = 0;  // the latest that an event has named
};

}  // namespace zeepo
