#include "zeepo/chat/expression_parser.h"

#include <algorithm>
#include <utility>

namespace zeepo::jinja {
namespace {

constexpr int kDeepest = 150;

template <class... Parts>
std::vector<ExpressionPtr> parts_of(Parts... parts) {
  std::vector<ExpressionPtr> all;
  (all.push_back(std::move(parts)), ...);
  return all;
}

}  // namespace

ExpressionPtr ExpressionParser::make(Expression::Kind kind, int line, std::vector<ExpressionPtr> parts,
                                     std::string text) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->text = std::move(text);
  for (const auto& part : parts)
    if (part) made->depth = std::max(made->depth, part->depth + 1);
  made->parts = std::move(parts);
  if (made->depth > kDeepest) tokens_.fail(line, fmt::format("an expression nested deeper than {}", kDeepest));
  return made;
}

ExpressionPtr ExpressionParser::constant(int line, Value value) {
  auto made = make(Expression::Kind::constant, line);
  made->value = std::move(value);
  return made;
}

bool ExpressionParser::tuple_ends(std::string_view end) const {
  const Token& token = tokens_.current();
  return token.kind == Token::Kind::variable_end || token.kind == Token::Kind::block_end || token.is_sign(")") ||
         (!end.empty() && token.is_name(end));
}

ExpressionPtr ExpressionParser::tuple(Conditional conditional, std::string_view end) {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts;
  bool commas = false;
  for (;;) {
    if (!parts.empty()) tokens_.expect_sign(",");
    if (tuple_ends(end)) break;
    parts.push_back(expression(conditional));
    if (!tokens_.current().is_sign(",")) break;
    commas = true;
  }
  if (!commas && parts.empty()) tokens_.unexpected("an expression");
  if (!commas) return std::move(parts.front());
  return make(Expression::Kind::tuple, line, std::move(parts));
}

ExpressionPtr ExpressionParser::target(bool attributes, std::string_view end) {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts;
  bool commas = false;
  for (;;) {
    if (!parts.empty()) tokens_.expect_sign(",");
    if (tuple_ends(end)) break;
    const bool parenthesis = tokens_.skip_sign("(");
    const int name_line = tokens_.current().line;
    if (parenthesis) {
      if (++depth_ > kDeepest) tokens_.fail(line, "names to assign to, nested too deep");
      parts.push_back(target(attributes));
      --depth_;
      tokens_.expect_sign(")");
    } else {
      const std::string name = tokens_.expect_name();
      for (const std::string_view constant : {"true", "false", "True", "False", "none", "None", "loop"})
        if (name == constant) tokens_.fail(name_line, fmt::format("cannot assign to '{}'", name));
      auto made = make(Expression::Kind::name, name_line, {}, name);
      if (attributes && tokens_.skip_sign("."))
        made = make(Expression::Kind::attribute, name_line, parts_of(std::move(made)), tokens_.expect_name());
      parts.push_back(std::move(made));
    }
    if (!tokens_.current().is_sign(",")) break;
    commas = true;
  }
  if (parts.empty()) tokens_.unexpected("a name to assign to");
  if (!commas) return std::move(parts.front());
  return make(Expression::Kind::tuple, line, std::move(parts));
}

ExpressionPtr ExpressionParser::expression(Conditional conditional) {
  if (++depth_ > kDeepest)
    tokens_.fail(tokens_.current().line, fmt::format("an expression nested deeper than {}", kDeepest));
  auto value = either();
  while (conditional == Conditional::yes && tokens_.current().is_name("if")) {
    const int line = tokens_.next().line;
    auto test = either();
    ExpressionPtr otherwise = tokens_.skip_name("else") ? expression() : nullptr;
    value =
        make(Expression::Kind::conditional, line, parts_of(std::move(value), std::move(test), std::move(otherwise)));
  }
  --depth_;
  return value;
}

ExpressionPtr ExpressionParser::either() {
  auto left = both();
  while (tokens_.current().is_name("or")) {
    const int line = tokens_.next().line;
    left = make(Expression::Kind::either, line, parts_of(std::move(left), both()));
  }
  return left;
}

ExpressionPtr ExpressionParser::both() {
  auto left = opposite();
  while (tokens_.current().is_name("and")) {
    const int line = tokens_.next().line;
    left = make(Expression::Kind::both, line, parts_of(std::move(left), opposite()));
  }
  return left;
}

ExpressionPtr ExpressionParser::opposite() {
  std::vector<int> lines;
  while (tokens_.current().is_name("not")) lines.push_back(tokens_.next().line);
  auto value = compare();
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    value = make(Expression::Kind::opposite, *line, parts_of(std::move(value)));
  return value;
}

ExpressionPtr ExpressionParser::compare() {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts = parts_of(sum());
  std::vector<std::string> signs;
  for (;;) {
    const Token& token = tokens_.current();
    if (token.kind == Token::Kind::sign && (token.text == "==" || token.text == "!=" || token.text == "<" ||
                                            token.text == "<=" || token.text == ">" || token.text == ">=")) {
      signs.push_back(tokens_.next().text);
    } else if (token.is_name("in")) {
      signs.push_back(tokens_.next().text);
    } else if (token.is_name("not") && tokens_.ahead().is_name("in")) {
      tokens_.next();
      tokens_.next();
      signs.emplace_back("not in");
    } else {
      break;
    }
    parts.push_back(sum());
  }
  if (signs.empty()) return std::move(parts.front());
  auto made = make(Expression::Kind::compare, line, std::move(parts));
  made->names = std::move(signs);
  return made;
}

ExpressionPtr ExpressionParser::sum() {
  auto left = concat();
  while (tokens_.current().is_sign("+") || tokens_.current().is_sign("-")) {
    const Token sign = tokens_.next();
    left = make(Expression::Kind::binary, sign.line, parts_of(std::move(left), concat()), sign.text);
  }
  return left;
}

ExpressionPtr ExpressionParser::concat() {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts = parts_of(product());
  while (tokens_.skip_sign("~")) parts.push_back(product());
  if (parts.size() == 1) return std::move(parts.front());
  return make(Expression::Kind::concat, line, std::move(parts));
}

ExpressionPtr ExpressionParser::product() {
  auto left = power();
  for (;;) {
    const Token& token = tokens_.current();
    if (!token.is_sign("*") && !token.is_sign("/") && !token.is_sign("//") && !token.is_sign("%")) return left;
    const Token sign = tokens_.next();
    left = make(Expression::Kind::binary, sign.line, parts_of(std::move(left), power()), sign.text);
  }
}

ExpressionPtr ExpressionParser::power() {
  auto left = unary();
  while (tokens_.current().is_sign("**")) {
    const Token sign = tokens_.next();
    left = make(Expression::Kind::binary, sign.line, parts_of(std::move(left), unary()), sign.text);
  }
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filter) {
  const Token& token = tokens_.current();
  ExpressionPtr value;
  if (token.is_sign("-") || token.is_sign("+")) {
    const Token sign = tokens_.next();
    if (++depth_ > kDeepest) tokens_.fail(sign.line, fmt::format("an expression nested deeper than {}", kDeepest));
    const auto kind = sign.text == "-" ? Expression::Kind::negative : Expression::Kind::positive;
    value = make(kind, sign.line, parts_of(unary(false)));
    --depth_;
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = tokens_.current();
  switch (token.kind) {
    case Token::Kind::name:
      tokens_.next();
      if (token.text == "true" || token.text == "True") return constant(token.line, true);
      if (token.text == "false" || token.text == "False") return constant(token.line, false);
      if (token.text == "none" || token.text == "None") return constant(token.line, None{});
      return make(Expression::Kind::name, token.line, {}, token.text);
    case Token::Kind::text: {
      std::string text;
      while (tokens_.current().kind == Token::Kind::text) text += tokens_.next().text;
      return constant(token.line, std::move(text));
    }
    case Token::Kind::whole:
    case Token::Kind::real: return constant(token.line, tokens_.next().value);
    default: break;
  }
  if (tokens_.skip_sign("(")) {
    if (tokens_.skip_sign(")")) return make(Expression::Kind::tuple, token.line);
    auto inside = tuple();
    tokens_.expect_sign(")");
    return inside;
  }
  if (token.is_sign("[")) return list();
  if (token.is_sign("{")) return dict();
  tokens_.unexpected("an expression");
}

ExpressionPtr ExpressionParser::list() {
  const int line = tokens_.next().line;
  std::vector<ExpressionPtr> items;
  while (!tokens_.current().is_sign("]")) {
    if (!items.empty()) tokens_.expect_sign(",");
    if (tokens_.current().is_sign("]")) break;
    items.push_back(expression());
  }
  tokens_.expect_sign("]");
  return make(Expression::Kind::list, line, std::move(items));
}

ExpressionPtr ExpressionParser::dict() {
  const int line = tokens_.next().line;
  std::vector<ExpressionPtr> parts;
  while (!tokens_.current().is_sign("}")) {
    if (!parts.empty()) tokens_.expect_sign(",");
    if (tokens_.current().is_sign("}")) break;
    parts.push_back(expression());
    tokens_.expect_sign(":");
    parts.push_back(expression());
  }
  tokens_.expect_sign("}");
  return make(Expression::Kind::dict, line, std::move(parts));
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr base) {
  for (;;) {
    const Token& token = tokens_.current();
    if (token.is_sign(".") || token.is_sign("[")) {
      base = subscript(std::move(base));
    } else if (token.is_sign("(")) {
      base = with_arguments(Expression::Kind::call, std::move(base), "");
    } else {
      return base;
    }
  }
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr base) {
  for (;;) {
    const Token& token = tokens_.current();
    if (token.is_sign("|")) {
      tokens_.next();
      base = filter(std::move(base));
    } else if (token.is_name("is")) {
      base = test(std::move(base));
    } else if (token.is_sign("(")) {
      base = with_arguments(Expression::Kind::call, std::move(base), "");
    } else {
      return base;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr base) {
  const Token open = tokens_.next();
  if (open.text == ".") {
    const Token what = tokens_.next();
    if (what.kind == Token::Kind::name)
      return make(Expression::Kind::attribute, what.line, parts_of(std::move(base)), what.text);
    if (what.kind != Token::Kind::whole) tokens_.fail(what.line, "expected a name or a number after '.'");
    return make(Expression::Kind::item, what.line, parts_of(std::move(base), constant(what.line, what.value)));
  }
  const auto part = [&]() -> ExpressionPtr {
    return tokens_.current().is_sign(":") || tokens_.current().is_sign("]") ? nullptr : expression();
  };
  auto first = part();
  ExpressionPtr made;
  if (tokens_.skip_sign(":")) {
    auto second = part();
    auto third = tokens_.skip_sign(":") ? part() : nullptr;
    made = make(Expression::Kind::slice, open.line,
                parts_of(std::move(base), std::move(first), std::move(second), std::move(third)));
  } else {
    if (!first) tokens_.unexpected("an expression");
    made = make(Expression::Kind::item, open.line, parts_of(std::move(base), std::move(first)));
  }
  if (tokens_.current().is_sign(",")) tokens_.fail(open.line, "several places inside of [] are not supported");
  tokens_.expect_sign("]");
  return made;
}

ExpressionPtr ExpressionParser::with_arguments(Expression::Kind kind, ExpressionPtr base, std::string text) {
  const int line = tokens_.current().line;
  std::vector<ExpressionPtr> parts = parts_of(std::move(base));
  std::vector<std::string> names;
  if (tokens_.skip_sign("(")) {
    bool first = true;
    while (!tokens_.current().is_sign(")")) {
      if (!first) tokens_.expect_sign(",");
      first = false;
      if (tokens_.current().is_sign(")")) break;
      if (tokens_.current().is_sign("*") || tokens_.current().is_sign("**"))
        tokens_.fail(line, "arguments from a list or dict (* and **) are not supported");
      if (tokens_.current().kind == Token::Kind::name && tokens_.ahead().is_sign("=")) {
        names.push_back(tokens_.expect_name());
        tokens_.next();
      } else if (!names.empty()) {
        tokens_.fail(line, "an argument without a name after one with a name");
      }
      parts.push_back(expression());
    }
    tokens_.expect_sign(")");
  }
  auto made = make(kind, line, std::move(parts), std::move(text));
  made->names = std::move(names);
  return made;
}

ExpressionPtr ExpressionParser::filter(ExpressionPtr base) {
  std::string name = tokens_.expect_name();
  while (tokens_.skip_sign(".")) {
    name += '.';
    name += tokens_.expect_name();
  }
  return with_arguments(Expression::Kind::filter, std::move(base), std::move(name));
}

ExpressionPtr ExpressionParser::test(ExpressionPtr base) {
  const int line = tokens_.next().line;
  const bool negated = tokens_.skip_name("not");
  const std::string name = tokens_.expect_name();
  const Token& token = tokens_.current();
  ExpressionPtr made;
  const bool is_argument =
      token.kind == Token::Kind::text || token.kind == Token::Kind::whole || token.kind == Token::Kind::real ||
      token.is_sign("[") || token.is_sign("{") ||
      (token.kind == Token::Kind::name && token.text != "else" && token.text != "or" && token.text != "and");
  if (is_argument) {
    if (token.is_name("is")) tokens_.fail(line, "several tests with \"is\" one after another");
    made = make(Expression::Kind::test, line, parts_of(std::move(base), postfix(primary())), name);
  } else {
    made = with_arguments(Expression::Kind::test, std::move(base), name);
  }
  return negated ? make(Expression::Kind::opposite, line, parts_of(std::move(made))) : std::move(made);
}

ExpressionPtr ExpressionParser::block_filter(bool starts_with_name) {
  if (!starts_with_name && !tokens_.current().is_sign("|")) return nullptr;
  ExpressionPtr made;
  if (starts_with_name) made = filter(nullptr);
  while (tokens_.skip_sign("|")) made = filter(std::move(made));
  return made;
}

}  // namespace zeepo::jinja
