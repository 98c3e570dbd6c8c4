// JSON to values and back, as Python's json does it: the order of keys is kept.
#pragma once

#include <string>
#include <string_view>

#include "zeepo/chat/budget.h"
#include "zeepo/chat/value.h"

namespace zeepo::jinja {

// Throws Error with `name` when the text is not JSON, is nested deeper than kDeepestValue, or has a whole number of
// more than 64 bits.
Value parse_json_value(std::string_view text, std::string_view name);

struct JsonStyle {
  bool ascii = false;  // everything else as \uXXXX
  bool sort_keys = false;
  std::string indent;  // a level; with `lines`
  bool lines = false;  // an item a line
  std::string between = ", ", after_key = ": ";
};
// Throws Fault for a value that JSON does not have.
void append_json(const Value& value, const JsonStyle& style, TextBuilder& out, int level = 0);

}  // namespace zeepo::jinja
