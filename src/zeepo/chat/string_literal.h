// A string of a template's expression, with Python's escapes.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace zeepo::jinja {

struct StringLiteral {
  std::string text;
  std::size_t bytes;  // of the source, quotes included
};

// `source` begins with a quote. `fail` throws.
StringLiteral read_string_literal(std::string_view source, const std::function<void(std::string_view message)>& fail);

}  // namespace zeepo::jinja
