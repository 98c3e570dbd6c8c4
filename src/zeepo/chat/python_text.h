// Text as Python handles it: characters instead of bytes, white space, case, and how values print.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/chat/budget.h"
#include "zeepo/chat/value.h"

namespace zeepo::jinja {

bool is_space(char32_t c);
enum class Side { left, right, both };
// Without white space, or without any of `characters`, at its ends.
std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters = std::nullopt);

std::int64_t length_in_characters(std::string_view text);
// The byte at which each character begins, and text.size() at the end.
std::vector<std::size_t> character_starts(std::string_view text, Budget& budget);

// One character for one, but for ß, whose upper case is SS.
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string capitalize(std::string_view text);
// Each run of letters begins in upper case: str.title().
std::string title_of_letters(std::string_view text);
// Each word after white space or an opening bracket does: the filter.
std::string title_of_words(std::string_view text);

// & < > ' " as HTML writes them: what Python's Markup does to text that is added to it.
std::string escape_html(std::string_view text);

std::string spell_float(double number);
// Python's str() and repr().
void append_str(const Value& value, TextBuilder& out);
void append_repr(const Value& value, TextBuilder& out);
std::string to_str(const Value& value, Budget& budget);

}  // namespace zeepo::jinja
