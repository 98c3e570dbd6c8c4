#include "zeepo/serve/stop_strings.h"

#include <algorithm>
#include <utility>

namespace zeepo {

std::string StopStrings::push(std::string_view piece) {
  if (met_) return "";
  held_ += piece;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    met_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  // The longest end of the text that a stop string begins with.
  std::size_t kept = 0;
  for (const std::string& stop : stops_)
    for (std::size_t length = std::min(stop.size() - 1, held_.size()); length > kept; --length)
      if (held_.ends_with(std::string_view(stop).substr(0, length))) kept = length;
  std::string told = held_.substr(0, held_.size() - kept);
  held_.erase(0, told.size());
  return told;
}

std::string StopStrings::finish() { return met_ ? "" : std::exchange(held_, {}); }

}  // namespace zeepo
