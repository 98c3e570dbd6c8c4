// Figures of events as people read them.
#pragma once

#include <string>

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

// An empty one where there is none.
const Event& object_in(const Event& event, const char* key);
// Not a number where there is none.
double number_in(const Event& event, const char* key);
// Empty where there is none; without what would change the terminal.
std::string text_in(const Event& event, const char* key);

// Groups of three digits: 12,345,678.
std::string grouped(double value);
std::string bytes_text(double bytes);
std::string duration_text(double seconds);
// Of something a second: three digits, or whole.
std::string rate_text(double value);

}  // namespace zeepo
