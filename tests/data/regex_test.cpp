#include "zeepo/data/regex.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "zeepo/data/regex_syntax.h"

namespace zeepo {
namespace {

std::vector<std::string> matches(std::string_view oniguruma, std::string_view text) {
  const Regex regex(to_pcre2_syntax(oniguruma));
  RegexScratch scratch;
  RegexMatches found(regex, scratch, text);
  std::vector<std::string> result;
  while (const auto match = found.next()) result.emplace_back(text.substr(match->begin, match->end - match->begin));
  return result;
}

using Strings = std::vector<std::string>;

TEST(RegexSyntax, SaysInPcre2WhatOnigurumaMeans) {
  EXPECT_EQ(to_pcre2_syntax(R"(\p{N}{1,3}| ?[^\s\p{L}]+[\r\n/]*)"), R"(\p{N}{1,3}| ?[^\s\p{L}]+[\r\n/]*)");
  EXPECT_EQ(to_pcre2_syntax(R"(\h{,3})"), "[0-9a-fA-F]{0,3}");
  EXPECT_EQ(to_pcre2_syntax(R"((?mi:a)\v\u00e9)"), R"((?si:a)\x{0b}\x{00e9})");
  EXPECT_EQ(to_pcre2_syntax(R"(\p{Han}\P{^Letter})"), R"(\p{sc:Han}\p{L})");
  EXPECT_EQ(to_pcre2_syntax("a{b}{,}"), R"(a\{b}\{,})");
  EXPECT_EQ(to_pcre2_syntax(R"([\h-x])"), R"([0-9a-fA-F\-x])");
}

TEST(RegexSyntax, RefusesWhatItCannotSay) {
  for (const std::string_view text :
       {"[a[b]]", "[a&&b]",  "(?<name>a)", "(?x:a)",  "a(?i)b|c", "(*ACCEPT)", R"(\1)", R"(\K)",
        R"(\G)",  R"(\xE3)", R"(\x{)",     "a{2}+",   "a{1,2}+",  "a{2}?",     "[]",    "[a",
        R"(\)",   R"(\pL)",  R"(\p{a b})", R"([\W])", R"(\R)",    R"(\Q)"})
    EXPECT_NE(error_text([&] { to_pcre2_syntax(text); }).find("is not supported"), std::string::npos) << text;
}

TEST(RegexSyntax, EscapedTextMatchesItself) {
  const std::string text = R"(a.b*[c]\d "é")";
  const Regex regex(escape_for_pcre2(text));
  RegexScratch scratch;
  RegexMatches found(regex, scratch, text);
  EXPECT_EQ(found.next()->end, text.size());
}

TEST(Regex, SpacesAreThoseOfOniguruma) {
  EXPECT_EQ(matches(R"(\s)", "a\u0085b\u00a0c\u180ed\u200be\u3000"), (Strings{"\u0085", "\u00a0", "\u3000"}));
}

TEST(Regex, YoungLettersAreLetters) {
  // Unicode 15 and 16: an ideograph, a capital of Garay, a digit of Garay.
  EXPECT_EQ(matches(R"(\p{L}+)", "a\U00031350b \U00010D50!\U00010D40"), (Strings{"a\U00031350b", "\U00010D50"}));
  EXPECT_EQ(matches(R"(\p{N})", "a\U00031350b \U00010D50!\U00010D40"), (Strings{"\U00010D40"}));
  EXPECT_EQ(matches(R"(\p{Han})", "\U00031350"), (Strings{"\U00031350"}));
}

TEST(Regex, EmptyMatchesComeOnceAndOnlyBetweenOthers) { EXPECT_EQ(matches("x*", "axxé"), (Strings{"", "xx", ""})); }

TEST(Regex, FaultsAreErrors) {
  EXPECT_NE(error_text([] { Regex("(a"); }).find("missing closing parenthesis"), std::string::npos);
  EXPECT_NE(error_text([] { Regex(R"(\p{sc:Nothing})"); }).find("unknown property"), std::string::npos);
  EXPECT_NE(error_text([] { Regex(std::string(100'000, 'a')); }).find("100000 bytes"), std::string::npos);
}

}  // namespace
}  // namespace zeepo
