#include "zeepo/metrics/event_sinks.h"

#include <algorithm>
#include <deque>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"

namespace zeepo {

void EventSinks::write(const Event& event) {
  step_ = std::max(step_, step_of(event));
  std::deque<Event> faults;
  for (Listed& listed : sinks_)
    if (Event fault = write_to(listed, event, step_); !fault.is_null()) faults.push_back(std::move(fault));
  // Each sink fails for the first time once at most, so that this ends.
  for (; !faults.empty(); faults.pop_front())
    for (Listed& listed : sinks_)
      if (Event fault = write_to(listed, faults.front(), step_); !fault.is_null()) faults.push_back(std::move(fault));
}

Event EventSinks::write_to(Listed& listed, const Event& event, std::int64_t step) {
  if (!listed.failure.empty() && !listed.sink->recovers()) return nullptr;
  try {
    listed.sink->write(event);
    listed.failure.clear();
    return nullptr;
  } catch (const std::exception& error) {
    listed.failure = fmt::format("{}: {}", listed.sink->name(), error.what());
  }
  if (std::exchange(listed.warned, true)) return nullptr;
  say("zeepo: warning: {}; the run goes on without it\n", listed.failure);
  return {{"event", "fault"}, {"step", step}, {"what", "metrics"}, {"message", listed.failure}};
}

void EventSinks::check() const {
  std::string failures;
  for (const Listed& listed : sinks_)
    if (!listed.failure.empty()) failures += fmt::format("{}{}", failures.empty() ? "" : "; ", listed.failure);
  if (!failures.empty()) throw Error("{}; what it holds of the run is not complete", failures);
}

}  // namespace zeepo
