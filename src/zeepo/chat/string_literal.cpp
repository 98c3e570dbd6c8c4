#include "zeepo/chat/string_literal.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "zeepo/data/utf8.h"

namespace zeepo::jinja {
namespace {

using Fail = std::function<void(std::string_view message)>;

// Up to `most` digits of a base.
struct Digits {
  std::uint32_t value = 0;
  std::size_t count = 0;
};

Digits read_digits(std::string_view text, std::size_t most, int base) {
  Digits digits;
  const std::string_view field = text.substr(0, most);
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), digits.value, base);
  if (error == std::errc{}) digits.count = static_cast<std::size_t>(end - field.data());
  return digits;
}

void append_character(std::uint32_t code, std::string& out, const Fail& fail) {
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail(fmt::format("\\u{:x} is no character", code));
  append_utf8(static_cast<char32_t>(code), out);
}

// `text` begins after the backslash; returns the bytes taken.
std::size_t read_escape(std::string_view text, std::string& out, const Fail& fail) {
  constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
  const char c = text.front();
  if (const std::size_t known = kNames.find(c); known != std::string_view::npos) {
    out += kValues[known];
    return 1;
  }
  if (c == '\n') return 1;  // the line goes on
  if (c >= '0' && c <= '7') {
    const Digits digits = read_digits(text, 3, 8);
    append_character(digits.value, out, fail);
    return digits.count;
  }
  if (c == 'x' || c == 'u' || c == 'U') {
    const std::size_t wanted = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    const Digits digits = read_digits(text.substr(1), wanted, 16);
    if (digits.count != wanted) fail(fmt::format("\\{} needs {} digits", c, wanted));
    append_character(digits.value, out, fail);
    return 1 + wanted;
  }
  if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) fail("an escape of this kind in a string is not supported");
  out += '\\';  // as Python leaves it
  out += c;
  return 1;
}

}  // namespace

StringLiteral read_string_literal(std::string_view source, const Fail& fail) {
  StringLiteral literal{"", 0};
  const char quote = source.front();
  for (std::size_t at = 1; at < source.size();) {
    if (source[at] == quote) {
      literal.bytes = at + 1;
      return literal;
    }
    if (source[at] == '\\' && at + 1 < source.size()) {
      at += 1 + read_escape(source.substr(at + 1), literal.text, fail);
    } else {
      literal.text += source[at++];
    }
  }
  fail("a string does not end");
  return literal;
}

}  // namespace zeepo::jinja
