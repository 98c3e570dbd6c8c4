#include "zeepo/metrics/figure_text.h"

#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {
namespace {

constexpr std::size_t kMostTextBytes = 500;

}  // namespace

const Event& object_in(const Event& event, const char* key) {
  static const Event none = Event::object();
  const auto found = event.find(key);
  return found != event.end() && found->is_object() ? *found : none;
}

double number_in(const Event& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number() ? found->get<double>() : NAN;
}

std::string text_in(const Event& event, const char* key) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_string()) return "";
  std::string text = found->get<std::string>().substr(0, kMostTextBytes);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  return text;
}

std::string grouped(double value) {
  if (!(std::abs(value) < 1e18)) return fmt::format("{}", value);
  const std::string digits = fmt::format("{}", std::llround(value));
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    out += digits[i];
    const std::size_t left = digits.size() - i - 1;
    if (left > 0 && left % 3 == 0 && digits[i] != '-') out += ',';
  }
  return out;
}

std::string bytes_text(double bytes) {
  return bytes >= 0 && bytes < 9e18 ? format_size(static_cast<std::int64_t>(bytes)) : "?";
}

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e15)) return "?";
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", 1000 * seconds);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  const auto minutes = static_cast<std::int64_t>(seconds / 60);
  return minutes < 120 ? fmt::format("{} min {:02} s", minutes, static_cast<std::int64_t>(seconds) % 60)
                       : fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

std::string rate_text(double value) { return value < 100 ? fmt::format("{:.3g}", value) : grouped(value); }

}  // namespace zeepo
