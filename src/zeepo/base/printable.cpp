#include "zeepo/base/printable.h"

#include <fmt/format.h>

#include <iterator>

namespace zeepo {
namespace {

bool is_control(unsigned char c) { return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f; }

// The other controls of Unicode, U+0080 to U+009F, which some terminals obey, are these two bytes in UTF-8.
bool is_wide_control(unsigned char c, unsigned char next) { return c == 0xc2 && next >= 0x80 && next <= 0x9f; }

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    if (is_control(c)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
    } else if (is_wide_control(c, next)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", next);
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace zeepo
