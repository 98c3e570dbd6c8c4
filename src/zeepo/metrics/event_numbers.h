// The numbers of an event under their names: {"loss":2,"memory":{"host":{"total":3}}} has loss and memory/host/total.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

struct EventNumber {
  std::string name;    // its keys, joined by the separator
  const Event* value;  // of the event; an integer, a float, a boolean, or null where JSON has no such number
  // Null is not a number; true is 1.
  double number() const;
};

// In the order of the event, without "step". Borrows the event. Texts and arrays are left out.
std::vector<EventNumber> numbers_of(const Event& event, char separator);

}  // namespace zeepo
