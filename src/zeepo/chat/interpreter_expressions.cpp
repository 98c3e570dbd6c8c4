// The expressions of a template.
#include <fmt/format.h>

#include "zeepo/chat/filters.h"
#include "zeepo/chat/interpreter.h"
#include "zeepo/chat/interpreter_scope.h"
#include "zeepo/chat/methods.h"
#include "zeepo/chat/operators.h"
#include "zeepo/chat/python_text.h"

namespace zeepo::jinja {

Value Interpreter::look_up(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
    for (const auto& [known, value] : scope->names)
      if (known == name) return value;
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::evaluate(const Expression& expression) {
  const DepthScope depth(budget_);
  switch (expression.kind) {
    case Expression::Kind::constant: return expression.value;
    case Expression::Kind::name: return look_up(expression.text);
    case Expression::Kind::both: {
      Value left = evaluate(*expression.parts[0]);
      return is_true(left) ? evaluate(*expression.parts[1]) : left;
    }
    case Expression::Kind::either: {
      Value left = evaluate(*expression.parts[0]);
      return is_true(left) ? left : evaluate(*expression.parts[1]);
    }
    case Expression::Kind::opposite: return !is_true(evaluate(*expression.parts[0]));
    case Expression::Kind::conditional:
      if (is_true(evaluate(*expression.parts[1]))) return evaluate(*expression.parts[0]);
      if (expression.parts[2]) return evaluate(*expression.parts[2]);
      return Value::undefined("an inline \"if\" was false and has no \"else\"");
    default: return evaluate_operation(expression);
  }
}

// The line is set again after the operands, for what goes wrong with the operation itself.
Value Interpreter::evaluate_operation(const Expression& expression) {
  const auto& parts = expression.parts;
  const auto part = [&](std::size_t i) {
    Value value = i < parts.size() && parts[i] ? evaluate(*parts[i]) : Value(None{});
    line_ = expression.line;
    return value;
  };
  switch (expression.kind) {
    case Expression::Kind::attribute: return attribute_of(part(0), expression.text, budget_);
    case Expression::Kind::item: {
      const Value base = part(0), key = part(1);
      return item_of(base, key, budget_);
    }
    case Expression::Kind::slice: {
      const Value base = part(0), begin = part(1), end = part(2), step = part(3);
      return slice_of(base, begin, end, step, budget_);
    }
    case Expression::Kind::call: return evaluate_call(expression);
    case Expression::Kind::filter: return evaluate_filter(expression, part(0));
    case Expression::Kind::test: {
      const Value tried = part(0);
      Arguments arguments = arguments_of(expression);
      return apply_test(expression.text, tried, arguments, budget_);
    }
    case Expression::Kind::negative: return negative(part(0));
    case Expression::Kind::positive: return binary("+", 0, part(0), budget_);
    case Expression::Kind::binary: {
      const Value left = part(0), right = part(1);
      return binary(expression.text, left, right, budget_);
    }
    case Expression::Kind::compare: return evaluate_compare(expression);
    default: return evaluate_collection(expression);
  }
}

bool Interpreter::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (std::size_t i = 0; i < expression.names.size(); ++i) {
    Value right = evaluate(*expression.parts[i + 1]);
    line_ = expression.line;
    if (!compare(expression.names[i], left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

// Lists, tuples, dicts and "~".
Value Interpreter::evaluate_collection(const Expression& expression) {
  std::vector<Value> values;
  for (const auto& part : expression.parts) values.push_back(evaluate(*part));
  line_ = expression.line;
  budget_.bytes(values.size() * sizeof(Value));
  if (expression.kind == Expression::Kind::concat) {
    TextBuilder out(budget_);
    for (const Value& value : values) append_str(value, out);
    return out.take();
  }
  if (expression.kind == Expression::Kind::dict) {
    Dict dict;
    for (std::size_t i = 0; i + 1 < values.size(); i += 2) dict.set(values[i], values[i + 1]);
    return make_dict(std::move(dict));
  }
  return make_list(std::move(values),
                   expression.kind == Expression::Kind::tuple ? List::Kind::tuple : List::Kind::list);
}

Arguments Interpreter::arguments_of(const Expression& call) {
  Arguments arguments;
  const std::size_t first_named = call.parts.size() - call.names.size();
  for (std::size_t i = 1; i < call.parts.size(); ++i) {
    Value value = evaluate(*call.parts[i]);
    if (i < first_named) {
      arguments.positional.push_back(std::move(value));
    } else {
      arguments.named.emplace_back(call.names[i - first_named], std::move(value));
    }
  }
  line_ = call.line;
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& call) {
  const Value function = evaluate(*call.parts[0]);
  Arguments arguments = arguments_of(call);
  must_be_defined(function);
  const auto* callable = function.get<std::shared_ptr<const Callable>>();
  if (callable == nullptr) throw Fault(fmt::format("a {} cannot be called", type_name(function)));
  const auto held = *callable;
  return held->call(arguments);
}

Value Interpreter::evaluate_filter(const Expression& filter, const Value& input) {
  Arguments arguments = arguments_of(filter);
  return apply_filter(filter.text, input, arguments, budget_);
}

// Filters of a block, one inside of the other; the innermost takes the block's text.
Value Interpreter::evaluate_chain(const Expression& filter, const Value& input) {
  return evaluate_filter(filter, filter.parts[0] ? evaluate_chain(*filter.parts[0], input) : input);
}

}  // namespace zeepo::jinja
