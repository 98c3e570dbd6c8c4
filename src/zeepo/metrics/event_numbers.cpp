#include "zeepo/metrics/event_numbers.h"

#include <limits>

namespace zeepo {
namespace {

constexpr int kMostLevels = 8;  // which no event of a run has; a log is not always one

void collect(const Event& object, const std::string& prefix, char separator, int levels,
             std::vector<EventNumber>& found) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object() && levels > 1)
      collect(value, prefix + key + separator, separator, levels - 1, found);
    else if (value.is_number() || value.is_boolean() || value.is_null())
      found.push_back({prefix + key, &value});
  }
}

}  // namespace

double EventNumber::number() const {
  if (value->is_null()) return std::numeric_limits<double>::quiet_NaN();
  return value->is_boolean() ? value->get<bool>() : value->get<double>();
}

std::vector<EventNumber> numbers_of(const Event& event, char separator) {
  std::vector<EventNumber> found;
  if (event.is_object()) collect(event, "", separator, kMostLevels, found);
  std::erase_if(found, [](const EventNumber& number) { return number.name == "step"; });
  return found;
}

}  // namespace zeepo
