// A template's source as tokens, white space between tags as transformers asks for it: trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "zeepo/chat/value.h"

namespace zeepo::jinja {

struct Token {
  enum class Kind { data, variable_begin, variable_end, block_begin, block_end, name, text, whole, real, sign, end };
  Kind kind;
  int line;
  std::string text;  // of data, name, text, sign
  Value value;       // of numbers

  bool is_name(std::string_view name) const { return kind == Kind::name && text == name; }
  bool is_sign(std::string_view sign) const { return kind == Kind::sign && text == sign; }
};

// Ends with a token `end`. Throws Error with `name` and the line.
std::vector<Token> tokenize_template(std::string_view source, std::string_view name);

}  // namespace zeepo::jinja
