// Characters younger than the Unicode tables of PCRE2.
//
// A regular expression sees \p{L} and its like through the tables of the library that runs it. PCRE2 10.42 knows
// Unicode 14, the tokenizers library's Oniguruma knows 16. Before matching, each younger character is replaced by an
// older one of the same category, script and UTF-8 length, so that both cut the text at the same offsets. The few
// characters that the two libraries class differently for other reasons are treated alike.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zeepo {

// The stand-in of a young character, and any other character itself.
char32_t stand_in_of(char32_t character);
// `text` (valid UTF-8) with stand-ins, or nothing where it has no young character.
std::optional<std::string> with_stand_ins(std::string_view text);

}  // namespace zeepo
