// Regular expressions as tokenizer.json writes them, for Oniguruma, in the syntax of PCRE2.
//
// The two agree on most of what tokenizers use; where they do not (\h, \v, \w, \b, {,n}, (?m), \p{Han}) the expression
// is rewritten, and what cannot be said in PCRE2 with the same meaning is an Error, never another meaning.
#pragma once

#include <string>
#include <string_view>

namespace zeepo {

// Throws Error naming the expression and the part that is not supported.
std::string to_pcre2_syntax(std::string_view oniguruma);
// An expression that matches exactly `text`.
std::string escape_for_pcre2(std::string_view text);

}  // namespace zeepo
