// Expressions of a template, by the grammar of Jinja's own parser.
#pragma once

#include <string_view>

#include "zeepo/chat/syntax.h"
#include "zeepo/chat/token_reader.h"

namespace zeepo::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : tokens_(tokens) {}

  enum class Conditional { no, yes };
  // One expression, or several with commas between them as a tuple. It ends before the name `end`.
  ExpressionPtr tuple(Conditional conditional = Conditional::yes, std::string_view end = "");
  ExpressionPtr expression(Conditional conditional = Conditional::yes);
  // What is assigned to: a name, names with commas between them, or with a namespace's attribute.
  ExpressionPtr target(bool attributes, std::string_view end = "");
  // Filters with `|` between them, applied to a block; the first one's parts[0] is null. Null where there is none.
  ExpressionPtr block_filter(bool starts_with_name);

 private:
  ExpressionPtr make(Expression::Kind kind, int line, std::vector<ExpressionPtr> parts = {}, std::string text = "");
  ExpressionPtr constant(int line, Value value);
  bool tuple_ends(std::string_view end) const;

  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr opposite();
  ExpressionPtr compare();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter = true);
  ExpressionPtr primary();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr postfix(ExpressionPtr base);
  ExpressionPtr filters_and_tests(ExpressionPtr base);
  ExpressionPtr subscript(ExpressionPtr base);
  ExpressionPtr filter(ExpressionPtr base);
  ExpressionPtr test(ExpressionPtr base);
  ExpressionPtr with_arguments(Expression::Kind kind, ExpressionPtr base, std::string text);

  TokenReader& tokens_;
  int depth_ = 0;
};

}  // namespace zeepo::jinja
