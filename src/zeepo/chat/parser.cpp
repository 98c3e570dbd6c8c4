// The statements of a template.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "zeepo/chat/expression_parser.h"
#include "zeepo/chat/syntax.h"
#include "zeepo/chat/token_reader.h"

namespace zeepo::jinja {
namespace {

constexpr int kDeepestBlock = 60;  // blocks inside of one another

class Parser {
 public:
  explicit Parser(TokenReader& tokens) : tokens_(tokens), expressions_(tokens) {}

  Body whole() { return body({}); }

 private:
  using Ends = std::initializer_list<std::string_view>;
  using Conditional = ExpressionParser::Conditional;

  // Up to a block whose name is one of `ends`, of which "{%" is taken and the name is not.
  Body body(Ends ends) {
    Body made;
    for (;;) {
      const Token& token = tokens_.current();
      switch (token.kind) {
        case Token::Kind::data: made.push_back(make(Statement::Kind::text, token.line, tokens_.next().text)); break;
        case Token::Kind::variable_begin: made.push_back(output()); break;
        case Token::Kind::block_begin:
          tokens_.next();
          if (tokens_.current().kind == Token::Kind::name &&
              std::ranges::find(ends, tokens_.current().text) != ends.end())
            return made;
          made.push_back(statement());
          tokens_.expect(Token::Kind::block_end, "'%}'");
          break;
        default:
          if (ends.size() > 0) tokens_.unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
          return made;
      }
    }
  }

  static Statement make(Statement::Kind kind, int line, std::string text = "") {
    Statement made;
    made.kind = kind;
    made.line = line;
    made.text = std::move(text);
    return made;
  }

  Statement output() {
    Statement made = make(Statement::Kind::output, tokens_.next().line);
    made.value = expressions_.tuple();
    tokens_.expect(Token::Kind::variable_end, "'}}'");
    return made;
  }

  // A block's body, after the expressions of its tag; what ends it is taken.
  Body block(Ends ends) {
    if (++depth_ > kDeepestBlock)
      tokens_.fail(tokens_.current().line, fmt::format("blocks nested deeper than {}", kDeepestBlock));
    tokens_.skip_sign(":");
    tokens_.expect(Token::Kind::block_end, "'%}'");
    Body made = body(ends);
    --depth_;
    return made;
  }
  Body block_until(std::string_view end) {
    Body made = block({end});
    tokens_.next();
    return made;
  }
  // A body that is a function of its own in Jinja: loops outside of it cannot be left from it.
  Body function_until(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body made = block_until(end);
    loops_ = loops;
    return made;
  }

  Statement statement() {
    const Token token = tokens_.current();
    if (token.kind != Token::Kind::name) tokens_.unexpected("the name of a tag");
    tokens_.next();
    if (token.text == "if") return choose(token.line);
    if (token.text == "for") return loop(token.line);
    if (token.text == "set") return set(token.line);
    if (token.text == "macro") return macro(token.line);
    if (token.text == "with") return with(token.line);
    if (token.text == "break" || token.text == "continue") {
      if (loops_ == 0) tokens_.fail(token.line, fmt::format("{} outside of a loop", token.text));
      return make(token.text == "break" ? Statement::Kind::stop : Statement::Kind::skip, token.line);
    }
    if (token.text == "generation") {
      Statement made = make(Statement::Kind::generation, token.line);
      made.body = function_until("endgeneration");
      return made;
    }
    if (token.text == "filter") {
      Statement made = make(Statement::Kind::filter_block, token.line);
      made.value = expressions_.block_filter(true);
      made.body = block_until("endfilter");
      return made;
    }
    constexpr std::array<std::string_view, 8> kKnown = {"include", "import",     "from", "extends",
                                                        "block",   "autoescape", "call", "print"};
    if (std::ranges::find(kKnown, token.text) != kKnown.end())
      tokens_.fail(token.line, fmt::format("the tag '{}' is not supported in a chat template", token.text));
    tokens_.fail(token.line, fmt::format("unknown tag '{}'", token.text));
  }

  Statement choose(int line) {
    Statement made = make(Statement::Kind::choose, line);
    for (;;) {
      made.branches.emplace_back();
      made.branches.back().test = expressions_.tuple(Conditional::no);
      made.branches.back().body = block({"elif", "else", "endif"});
      const std::string end = tokens_.next().text;
      if (end == "elif") continue;
      if (end == "else") {
        made.branches.emplace_back();
        made.branches.back().body = block_until("endif");
      }
      return made;
    }
  }

  Statement loop(int line) {
    Statement made = make(Statement::Kind::loop, line);
    made.target = expressions_.target(false, "in");
    if (!tokens_.skip_name("in")) tokens_.unexpected("'in'");
    made.value = expressions_.tuple(Conditional::no, "recursive");
    if (tokens_.skip_name("if")) made.test = expressions_.expression();
    if (tokens_.current().is_name("recursive")) tokens_.fail(line, "recursive loops are not supported");
    ++loops_;
    made.body = block({"endfor", "else"});
    --loops_;
    if (tokens_.next().text == "else") made.otherwise = block_until("endfor");
    return made;
  }

  Statement set(int line) {
    Statement made = make(Statement::Kind::set, line);
    made.target = expressions_.target(true);
    if (tokens_.skip_sign("=")) {
      made.value = expressions_.tuple();
      return made;
    }
    made.kind = Statement::Kind::set_block;
    made.value = expressions_.block_filter(false);
    made.body = block_until("endset");
    return made;
  }

  Statement macro(int line) {
    Statement made = make(Statement::Kind::macro, line, tokens_.expect_name());
    tokens_.expect_sign("(");
    while (!tokens_.current().is_sign(")")) {
      if (!made.parameters.empty()) tokens_.expect_sign(",");
      if (tokens_.current().is_sign(")")) break;
      made.parameters.push_back({tokens_.expect_name(), nullptr});
      if (tokens_.skip_sign("=")) made.parameters.back().otherwise = expressions_.expression();
    }
    tokens_.expect_sign(")");
    made.body = function_until("endmacro");
    return made;
  }

  Statement with(int line) {
    Statement made = make(Statement::Kind::with, line);
    while (tokens_.current().kind != Token::Kind::block_end) {
      if (!made.assignments.empty()) tokens_.expect_sign(",");
      made.assignments.emplace_back();
      made.assignments.back().target = expressions_.target(false);
      tokens_.expect_sign("=");
      made.assignments.back().value = expressions_.expression();
    }
    made.body = block_until("endwith");
    return made;
  }

  TokenReader& tokens_;
  ExpressionParser expressions_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Body parse_template(std::string_view source, std::string_view name) {
  TokenReader tokens(tokenize_template(source, name), name);
  return Parser(tokens).whole();
}

}  // namespace zeepo::jinja
