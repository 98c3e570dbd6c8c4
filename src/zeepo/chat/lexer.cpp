#include "zeepo/chat/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "zeepo/base/error.h"
#include "zeepo/chat/python_text.h"
#include "zeepo/chat/string_literal.h"
#include "zeepo/data/utf8.h"

namespace zeepo::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// One kind of line end, and not the last one.
std::string with_plain_lines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name) : source_(source), name_(name) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) next_tag();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view message) const { throw Error("{}:{}: {}", name_, line_, message); }
  void add(Token::Kind kind, std::string text, Value value = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(value)});
  }
  std::string_view rest() const { return source_.substr(at_); }
  void advance(std::size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(source_.substr(at_, bytes), '\n'));
    at_ += bytes;
  }
  void skip_space() { advance(rest().size() - strip(rest(), Side::left).size()); }
  void skip_line_end() {
    if (rest().starts_with('\n')) advance(1);
  }

  void next_tag() {
    std::size_t begin = at_;
    for (;; ++begin) {
      begin = source_.find('{', begin);
      if (begin == std::string_view::npos || begin + 1 >= source_.size()) return add_data(rest(), rest().size());
      if (std::string_view("{%#").find(source_[begin + 1]) != std::string_view::npos) break;
    }
    const char kind = source_[begin + 1];
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    std::string_view data = source_.substr(at_, begin - at_);
    if (sign == '-') {
      data = strip(data, Side::right);
    } else if (sign != '+' && kind != '{') {
      const std::size_t line_begin = data.rfind('\n') + 1;
      if ((line_begin > 0 || line_starting_) && strip(data.substr(line_begin), Side::left).empty())
        data = data.substr(0, line_begin);
    }
    add_data(data, begin - at_);
    const int line = line_;
    const std::size_t tag = at_;
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '%' && raw_begins()) return raw();
    tokens_.push_back({kind == '{' ? Token::Kind::variable_begin : Token::Kind::block_begin, line, "", {}});
    expression(kind == '{' ? "}}" : "%}");
    line_starting_ = at_ > tag && source_[at_ - 1] == '\n';
  }

  void add_data(std::string_view data, std::size_t bytes) {
    if (!data.empty()) add(Token::Kind::data, std::string(data));
    advance(bytes);
  }

  void comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) fail("a comment does not end: #} is missing");
    const char before = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    end_tag(before);
  }

  // After the closing brace of a block or comment; `sign` stood before it.
  void end_tag(char sign) {
    if (sign == '-') skip_space();
    if (sign != '-' && sign != '+') skip_line_end();
    line_starting_ = source_[at_ - 1] == '\n';
  }

  // At "raw %}": past it.
  bool raw_begins() {
    std::string_view text = strip(rest(), Side::left);
    if (!text.starts_with("raw")) return false;
    text = strip(text.substr(3), Side::left);
    const bool strips = text.starts_with("-%}");
    if (!strips && !text.starts_with("%}")) return false;
    advance(rest().size() - text.size() + (strips ? 3 : 2));
    if (strips) skip_space();
    return true;
  }

  void raw() {
    line_starting_ = source_[at_ - 1] == '\n';
    for (std::size_t begin = at_;; ++begin) {
      begin = source_.find("{%", begin);
      if (begin == std::string_view::npos) fail("raw does not end: {% endraw %} is missing");
      std::string_view text = source_.substr(begin + 2);
      const char sign = text.empty() ? '\0' : text.front();
      if (sign == '-' || sign == '+') text.remove_prefix(1);
      text = strip(text, Side::left);
      if (!text.starts_with("endraw")) continue;
      text = strip(text.substr(6), Side::left);
      const char end_sign = text.empty() ? '\0' : text.front();
      if (end_sign == '-' || end_sign == '+') text.remove_prefix(1);
      if (!text.starts_with("%}")) continue;
      std::string_view data = source_.substr(at_, begin - at_);
      if (sign == '-') {
        data = strip(data, Side::right);
      } else if (sign != '+') {
        const std::size_t line_begin = data.rfind('\n') + 1;
        if ((line_begin > 0 || line_starting_) && strip(data.substr(line_begin), Side::left).empty())
          data = data.substr(0, line_begin);
      }
      add_data(data, source_.size() - text.size() + 2 - at_);
      return end_tag(end_sign);
    }
  }

  void expression(std::string_view closing) {
    std::string open;
    for (;;) {
      skip_space();
      if (rest().empty()) fail(fmt::format("a tag does not end: {} is missing", closing));
      if (open.empty() && tag_ends(closing)) return;
      const char c = rest().front();
      if (is_digit(c)) {
        number();
      } else if (is_name_start(c)) {
        const auto end = std::ranges::find_if(rest(), [](char d) { return !is_name_start(d) && !is_digit(d); });
        const auto bytes = static_cast<std::size_t>(end - rest().begin());
        add(Token::Kind::name, std::string(rest().substr(0, bytes)));
        advance(bytes);
      } else if (c == '\'' || c == '"') {
        const StringLiteral literal = read_string_literal(rest(), [&](std::string_view message) { fail(message); });
        add(Token::Kind::text, literal.text);
        advance(literal.bytes);
      } else {
        sign(open);
      }
    }
  }

  bool tag_ends(std::string_view closing) {
    const bool signed_end = rest().starts_with('-') || (closing == "%}" && rest().starts_with('+'));
    if (!rest().substr(signed_end ? 1 : 0).starts_with(closing)) return false;
    const char sign = signed_end ? rest().front() : '\0';
    add(closing == "}}" ? Token::Kind::variable_end : Token::Kind::block_end, "");
    advance(closing.size() + (signed_end ? 1 : 0));
    if (closing == "%}") {
      end_tag(sign);
    } else if (sign == '-') {
      skip_space();
    }
    return true;
  }

  std::size_t digits(std::size_t at) const {
    while (at < rest().size() && (is_digit(rest()[at]) ||
                                  (rest()[at] == '_' && at + 1 < rest().size() && is_digit(rest()[at + 1]) && at > 0)))
      ++at;
    return at;
  }

  void number() {
    if (rest().size() > 1 && rest()[0] == '0' && std::string_view("xXoObB").find(rest()[1]) != std::string_view::npos)
      fail("numbers in base 2, 8 or 16 are not supported");
    std::size_t end = digits(0);
    bool real = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // a place in a list: x.0.1
    if (!after_dot && end + 1 < rest().size() && rest()[end] == '.' && is_digit(rest()[end + 1])) {
      end = digits(end + 1);
      real = true;
    }
    if (!after_dot && end < rest().size() && (rest()[end] == 'e' || rest()[end] == 'E')) {
      std::size_t power = end + 1;
      if (power < rest().size() && (rest()[power] == '+' || rest()[power] == '-')) ++power;
      if (power < rest().size() && is_digit(rest()[power])) {
        end = digits(power);
        real = true;
      }
    }
    std::string text(rest().substr(0, end));
    std::erase(text, '_');
    const char *begin = text.data(), *last = begin + text.size();
    if (real) {
      double value = 0;
      if (std::from_chars(begin, last, value).ec != std::errc{}) fail(fmt::format("the number {} is too large", text));
      add(Token::Kind::real, "", value);
    } else {
      std::int64_t value = 0;
      if (std::from_chars(begin, last, value).ec != std::errc{})
        fail(fmt::format("{}: whole numbers of more than 64 bits are not supported", text));
      add(Token::Kind::whole, "", value);
    }
    advance(end);
  }

  void sign(std::string& open) {
    constexpr std::array<std::string_view, 27> kSigns = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";", "!"};
    const auto found = std::ranges::find_if(kSigns, [&](std::string_view s) { return rest().starts_with(s); });
    if (found == kSigns.end() || *found == "!")
      fail(fmt::format("unexpected character {:?}", rest().substr(0, code_point_at(rest(), 0).bytes)));
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(fmt::format("unexpected '{}'", c));
      if (open.back() != c) fail(fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    add(Token::Kind::sign, std::string(*found));
    advance(found->size());
  }

  std::string_view source_, name_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was read last ended with a line's end
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source, std::string_view name) {
  if (const std::size_t valid = valid_utf8_prefix(source); valid != source.size())
    throw Error("{}: not valid UTF-8 at byte {} of {}", name, valid, source.size());
  const std::string text = with_plain_lines(source);
  return Lexer(text, name).run();
}

}  // namespace zeepo::jinja
