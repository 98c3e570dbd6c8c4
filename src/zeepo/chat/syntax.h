// A template as a tree.
//
// Made by parse_template(), which bounds how deep it is, so that whatever walks it may recurse.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/chat/value.h"

namespace zeepo::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    constant,     // value
    name,         // text
    list,         // parts
    tuple,        // parts
    dict,         // parts: key, value, key, value ...
    attribute,    // parts[0].text
    item,         // parts[0][parts[1]]
    slice,        // parts[0][parts[1]:parts[2]:parts[3]], null where left out
    call,         // parts[0](the other parts); the last ones are the arguments called `names`
    filter,       // parts[0] | text(the other parts), `names` as in a call
    test,         // parts[0] is text(the other parts)
    negative,     // -parts[0]
    positive,     // +parts[0]
    binary,       // parts[0] text parts[1]
    compare,      // parts[0] names[0] parts[1] names[1] parts[2] ...
    both,         // parts[0] and parts[1]
    either,       // parts[0] or parts[1]
    opposite,     // not parts[0]
    concat,       // parts[0] ~ parts[1] ~ ...
    conditional,  // parts[0] if parts[1] else parts[2], which may be null
  };
  Kind kind;
  int line;
  int depth = 1;
  Value value;
  std::string text;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> names;
};

struct Statement;
using Body = std::vector<Statement>;

struct Statement {
  enum class Kind {
    text,          // text
    output,        // {{ value }}
    choose,        // if, elif and else: branches
    loop,          // for target in value if test: body; else: otherwise
    set,           // target = value
    set_block,     // target = what body writes, through the filter `value` if any
    macro,         // text(parameters): body
    filter_block,  // what body writes, through the filter `value`
    with,          // assignments: body
    generation,    // body, which the model writes
    stop,          // break
    skip,          // continue
  };
  struct Branch;
  struct Parameter {
    std::string name;
    ExpressionPtr otherwise;  // null: undefined
  };
  struct Assignment {
    ExpressionPtr target, value;
  };
  Kind kind;
  int line = 0;
  std::string text;
  ExpressionPtr target, value, test;
  Body body, otherwise;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  std::vector<Assignment> assignments;
};

struct Statement::Branch {
  ExpressionPtr test;  // null: else
  Body body;
};

// Throws Error with `name` and the line for what is not Jinja, or not supported.
Body parse_template(std::string_view source, std::string_view name);

}  // namespace zeepo::jinja
