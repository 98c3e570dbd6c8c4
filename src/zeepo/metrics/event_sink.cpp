#include "zeepo/metrics/event_sink.h"

namespace zeepo {

std::string line_of(const Event& event) { return event.dump(-1, ' ', false, Event::error_handler_t::replace) + "\n"; }

std::string kind_of(const Event& event) {
  if (!event.is_object()) return "";
  const auto kind = event.find("event");
  return kind != event.end() && kind->is_string() ? kind->get<std::string>() : "";
}

std::int64_t step_of(const Event& event) {
  if (!event.is_object()) return 0;
  const auto step = event.find("step");
  return step != event.end() && step->is_number_integer() ? step->get<std::int64_t>() : 0;
}

}  // namespace zeepo
