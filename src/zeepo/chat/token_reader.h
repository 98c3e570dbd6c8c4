// The tokens of a template one after another, and what the parsers of expressions and statements share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/chat/lexer.h"

namespace zeepo::jinja {

class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool skip_name(std::string_view name) { return current().is_name(name) && (next(), true); }
  bool skip_sign(std::string_view sign) { return current().is_sign(sign) && (next(), true); }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) unexpected(fmt::format("'{}'", sign));
  }
  std::string expect_name() {
    if (current().kind != Token::Kind::name) unexpected("a name");
    return next().text;
  }
  void expect(Token::Kind kind, std::string_view what) {
    if (current().kind != kind) unexpected(what);
    next();
  }

  [[noreturn]] void fail(int line, std::string_view message) const { throw Error("{}:{}: {}", name_, line, message); }
  [[noreturn]] void unexpected(std::string_view wanted) const {
    fail(current().line, fmt::format("expected {}, found {}", wanted, describe(current())));
  }

 private:
  static std::string describe(const Token& token) {
    switch (token.kind) {
      case Token::Kind::end: return "the end of the template";
      case Token::Kind::block_end: return "'%}'";
      case Token::Kind::variable_end: return "'}}'";
      case Token::Kind::whole:
      case Token::Kind::real: return "a number";
      case Token::Kind::text: return fmt::format("{:?}", token.text.substr(0, 40));
      default: return fmt::format("'{}'", token.text.substr(0, 40));
    }
  }

  std::vector<Token> tokens_;
  std::string_view name_;
  std::size_t at_ = 0;
};

}  // namespace zeepo::jinja
