// `--log FILE`: every event as a JSON line.
#pragma once

#include "zeepo/metrics/event_sink.h"
#include "zeepo/metrics/growing_file.h"

namespace zeepo {

class EventLog final : public EventSink {
 public:
  // "-" is stdout. Throws Error when the file cannot be made.
  EventLog(const std::string& target, GrowingFile::Mode mode);
  std::string name() const override { return "--log " + target_; }
  void write(const Event& event) override { file_.write(line_of(event)); }

 private:
  std::string target_;
  GrowingFile file_;
};

}  // namespace zeepo
