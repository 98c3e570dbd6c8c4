#include "zeepo/data/regex_syntax.h"

#include <algorithm>
#include <array>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

// What Oniguruma counts as a word character; the digits of Latin-1 are a habit of its tables.
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kLongNames = {{
    {"Letter", "L"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Other", "C"},
    {"Any", "Any"},
}};
constexpr std::array<std::string_view, 37> kCategories = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_ascii_alnum(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  explicit Translator(std::string_view text) : text_(text) {}

  std::string translate() {
    while (at_ < text_.size()) {
      switch (peek()) {
        case '\\': escape(); break;
        case '[': character_class(); break;
        case '(': group(); break;
        case '{': interval(); break;
        default: out_ += text_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  [[noreturn]] void unsupported(std::string_view what) const {
    throw Error("regular expression {:?}: {} at offset {} is not supported", text_, what, at_);
  }

  void group() {
    if (peek(1) == '*') unsupported("(*");
    if (peek(1) != '?') {
      out_ += text_[at_++];
      return;
    }
    for (const std::string_view open : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
      if (text_.substr(at_).starts_with(open)) {
        out_ += open;
        at_ += open.size();
        return;
      }
    options();
  }

  // (?i:...) and the like; m is "dot matches all". Without a colon Oniguruma's group reaches over later alternatives
  // and PCRE2's does not, unless it opens the expression.
  void options() {
    const std::size_t begin = at_;
    std::string options = "(?";
    for (at_ += 2; peek() == 'i' || peek() == 'm' || peek() == '-'; ++at_) options += peek() == 'm' ? 's' : peek();
    if (peek() != ':' && !(peek() == ')' && begin == 0)) {
      at_ = begin;
      unsupported("this kind of group");
    }
    out_ += options + text_[at_++];
  }

  void interval() {
    std::size_t end = at_ + 1;
    const auto digits = [&] {
      const std::size_t begin = end;
      while (end < text_.size() && is_digit(text_[end])) ++end;
      return text_.substr(begin, end - begin);
    };
    const std::string_view low = digits();
    const bool range = end < text_.size() && text_[end] == ',';
    if (range) ++end;
    const std::string_view high = range ? digits() : low;
    if (end >= text_.size() || text_[end] != '}' || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++at_;
      return;
    }
    const char next = end + 1 < text_.size() ? text_[end + 1] : '\0';
    if (next == '+' || (next == '?' && !range)) unsupported("a quantifier after an interval");
    out_ += '{';
    out_ += low.empty() ? "0" : low;
    if (range) out_ += ',';
    if (range) out_ += high;
    out_ += '}';
    at_ = end + 1;
  }

  void escape() {
    switch (peek(1)) {
      case 'w': return replace(2, "[", kWord, "]");
      case 'W': return replace(2, "[^", kWord, "]");
      case 'h': return replace(2, "[", kHexDigit, "]");
      case 'H': return replace(2, "[^", kHexDigit, "]");
      case 'b': return boundary("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))");
      case 'B': return boundary("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))");
      case 'A':
      case 'z':
      case 'Z': return copy(2);
      default: common_escape();
    }
  }

  void boundary(fmt::format_string<std::string_view&> format) {
    std::string_view word = kWord;
    out_ += fmt::format(format, word);
    at_ += 2;
  }

  // What means the same inside and outside of a character class.
  void common_escape() {
    const char c = peek(1);
    switch (c) {
      case '\0': unsupported("a backslash at the end");
      case 'd':
      case 'D':
      case 's':
      case 'S':
      case 'n':
      case 't':
      case 'r':
      case 'f':
      case 'a':
      case 'e': return copy(2);
      case 'v': return replace(2, R"(\x{0b})");
      case 'p':
      case 'P': return property();
      case 'x': return peek(2) == '{' ? hex(3, 8, '}') : hex(2, 2);
      case 'u': return hex(2, 4);
      default: break;
    }
    if (is_ascii_alnum(c)) unsupported(fmt::format("\\{}", c));
    if (is_ascii(c)) return copy(2);
    ++at_;
    out_ += text_[at_++];
  }

  // Oniguruma reads \xE3 as one byte of a character, PCRE2 as the character U+00E3.
  void hex(std::size_t from, std::size_t most, char closing = '\0') {
    std::size_t end = at_ + from;
    while (end < text_.size() && end < at_ + from + most && is_hex_digit(text_[end])) ++end;
    const std::string_view digits = text_.substr(at_ + from, end - at_ - from);
    const bool closed = closing == '\0' ? digits.size() == most : end < text_.size() && text_[end] == closing;
    const bool one_byte = peek(1) == 'x' && closing == '\0';
    if (digits.empty() || !closed || (one_byte && digits[0] > '7')) unsupported("this way to write a character");
    replace(end + (closing == '\0' ? 0 : 1) - at_, R"(\x{)", digits, "}");
  }

  void property() {
    const std::size_t close = text_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) unsupported("a property without {}");
    std::string_view name = text_.substr(at_ + 3, close - at_ - 3);
    bool negative = peek(1) == 'P';
    if (name.starts_with('^')) {
      negative = !negative;
      name.remove_prefix(1);
    }
    const auto* long_name = std::ranges::find(kLongNames, name, &decltype(kLongNames)::value_type::first);
    if (long_name != kLongNames.end()) name = long_name->second;
    const bool category = name == "Any" || std::ranges::find(kCategories, name) != kCategories.end();
    // A bare script name in PCRE2 also takes characters that several scripts share.
    const std::string_view prefix = category ? "" : "sc:";
    if (!std::ranges::all_of(name, [](char c) { return is_ascii_alnum(c) || c == '_'; })) unsupported("this property");
    replace(close + 1 - at_, negative ? R"(\P{)" : R"(\p{)", prefix, name, "}");
  }

  void character_class() {
    copy(peek(1) == '^' ? 2 : 1);
    if (peek() == ']') unsupported("an empty character class");
    bool after_set = false;  // the previous item was \w or the like, which cannot begin a range
    while (peek() != ']') {
      if (at_ >= text_.size()) unsupported("a character class without its end");
      if (peek() == '[') unsupported("a class within a class");
      if (peek() == '&' && peek(1) == '&') unsupported("&&");
      if (peek() == '-' && (after_set || (peek(1) == '\\' && is_set(peek(2))))) {
        out_ += "\\-";
        ++at_;
        after_set = false;
      } else if (peek() == '\\') {
        after_set = is_set(peek(1));
        class_escape();
      } else {
        after_set = false;
        out_ += text_[at_++];
      }
    }
    copy(1);
  }

  static bool is_set(char c) { return c != '\0' && std::string_view("wWdDsShHpP").find(c) != std::string_view::npos; }

  void class_escape() {
    switch (peek(1)) {
      case 'w': return replace(2, kWord);
      case 'h': return replace(2, kHexDigit);
      case 'W':
      case 'H': unsupported("this escape in a character class");
      case 'b': return replace(2, R"(\x{08})");
      default: common_escape();
    }
  }

  void copy(std::size_t bytes) {
    out_ += text_.substr(at_, bytes);
    at_ += bytes;
  }

  template <class... Parts>
  void replace(std::size_t bytes, const Parts&... parts) {
    at_ += bytes;
    ((out_ += parts), ...);
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string to_pcre2_syntax(std::string_view oniguruma) { return Translator(oniguruma).translate(); }

std::string escape_for_pcre2(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_ascii(c) && !is_ascii_alnum(c)) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace zeepo
