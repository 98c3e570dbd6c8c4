#include "zeepo/chat/interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/chat/builtins.h"
#include "zeepo/chat/filters.h"
#include "zeepo/chat/interpreter_scope.h"
#include "zeepo/chat/operators.h"
#include "zeepo/chat/python_text.h"

namespace zeepo::jinja {

Interpreter::Interpreter(std::string name, std::time_t now)
    : name_(std::move(name)), builtins_(std::make_shared<Scope>()), scope_(std::make_shared<Scope>(builtins_)) {
  add_builtins(now);
}

Interpreter::~Interpreter() {
  for (const auto& scope : kept_scopes_) scope->names.clear();
  for (const auto& space : namespaces_) space->attributes.clear();
}

void Interpreter::set(const std::string& name, Value value) { scope_->set(name, std::move(value)); }

void Interpreter::add_builtins(std::time_t now) {
  builtins_->set("range",
                 make_builtin("range", [this](Arguments& arguments) { return make_range(arguments, budget_); }));
  builtins_->set("dict", make_builtin("dict", make_dict_of));
  builtins_->set("raise_exception", make_builtin("raise_exception", [this](Arguments& arguments) -> Value {
                   const Value* message = arguments.take(0, "message");
                   throw Fault("the template refuses: " + (message ? to_str(*message, budget_) : ""));
                 }));
  builtins_->set("strftime_now",
                 make_builtin("strftime_now", [now](Arguments& arguments) { return format_time(arguments, now); }));
  builtins_->set("namespace", make_builtin("namespace", [this](Arguments& arguments) -> Value {
                   namespaces_.push_back(make_namespace(arguments));
                   budget_.bytes(sizeof(Namespace));
                   return namespaces_.back();
                 }));
  for (const char* name : {"lipsum", "cycler", "joiner"})
    builtins_->set(name, make_builtin(name, [name](Arguments&) -> Value {
                     throw Fault(fmt::format("{}() is not supported", name));
                   }));
}

Rendered Interpreter::render(const Body& body) {
  try {
    run(body);
  } catch (const Fault& fault) {
    throw Error("{}:{}: {}", name_, line_, fault.what());
  }
  return std::move(rendered_);
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const Statement& statement : body)
    if (const Flow flow = run(statement); flow != Flow::next) return flow;
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  const DepthScope depth(budget_);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::text:
      budget_.bytes(statement.text.size());
      *out_ += statement.text;
      break;
    case Statement::Kind::output: write(evaluate(*statement.value)); break;
    case Statement::Kind::choose:
      for (const auto& branch : statement.branches)
        if (!branch.test || is_true(evaluate(*branch.test))) return run(branch.body);
      break;
    case Statement::Kind::loop: return run_loop(statement);
    case Statement::Kind::set: assign(*statement.target, evaluate(*statement.value)); break;
    case Statement::Kind::set_block: run_set(statement); break;
    case Statement::Kind::macro: define_macro(statement); break;
    case Statement::Kind::filter_block: write(evaluate_chain(*statement.value, capture(statement.body))); break;
    case Statement::Kind::with: run_with(statement); break;
    case Statement::Kind::generation: run_generation(statement); break;
    case Statement::Kind::stop: return Flow::stop;
    case Statement::Kind::skip: return Flow::skip;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_loop(const Statement& loop) {
  const Value over = evaluate(*loop.value);
  const ScopePtr outside = scope_;
  std::shared_ptr<const std::vector<Value>> all;
  if (over.list() && over.list()->kind != List::Kind::generator) {
    const auto& list = *over.get<std::shared_ptr<const List>>();
    all = {list, &list->items};
  } else {
    all = std::make_shared<const std::vector<Value>>(items_of(over, budget_));
  }
  if (loop.test) {
    std::vector<Value> kept;
    for (const Value& item : *all) {
      scope_ = std::make_shared<Scope>(outside);
      assign(*loop.target, item);
      if (is_true(evaluate(*loop.test))) kept.push_back(item);
    }
    scope_ = outside;
    budget_.bytes(kept.size() * sizeof(Value));
    all = std::make_shared<const std::vector<Value>>(std::move(kept));
  }
  const int depth = depth_of_list(*all);
  Flow flow = Flow::next;
  for (std::size_t i = 0; i < all->size() && flow != Flow::stop; ++i) {
    budget_.step();
    scope_ = std::make_shared<Scope>(outside);
    assign(*loop.target, (*all)[i]);
    scope_->set("loop", Value(std::make_shared<const Loop>(Loop{all, i, depth})));
    flow = run(loop.body);
  }
  scope_ = outside;
  if (all->empty()) return run(loop.otherwise);
  return Flow::next;
}

void Interpreter::run_set(const Statement& set) {
  const Value text = capture(set.body);
  assign(*set.target, set.value ? evaluate_chain(*set.value, text) : text);
}

void Interpreter::run_with(const Statement& with) {
  const ScopePtr outside = scope_, inside = std::make_shared<Scope>(outside);
  for (const auto& assignment : with.assignments) {  // values see the names outside
    const Value value = evaluate(*assignment.value);
    scope_ = inside;
    assign(*assignment.target, value);
    scope_ = outside;
  }
  scope_ = inside;
  run(with.body);
  scope_ = outside;
}

void Interpreter::run_generation(const Statement& generation) {
  const ScopePtr outside = scope_;
  scope_ = std::make_shared<Scope>(outside);
  const bool in_place = out_ == &rendered_.text;
  const std::size_t begin = rendered_.text.size();
  run(generation.body);
  scope_ = outside;
  if (in_place) {
    rendered_.generated.push_back({begin, rendered_.text.size()});
  } else {
    rendered_.generated_elsewhere = true;
  }
}

void Interpreter::define_macro(const Statement& macro) {
  if (!std::exchange(scope_->is_kept, true)) kept_scopes_.push_back(scope_);
  Scope* const own = scope_.get();  // kept until the end
  scope_->set(macro.text, make_builtin(macro.text, [this, &macro, own](Arguments& arguments) {
                return call_macro(macro, own->shared_from_this(), arguments);
              }));
}

Value Interpreter::call_macro(const Statement& macro, const ScopePtr& scope, Arguments& arguments) {
  const ScopePtr outside = std::exchange(scope_, std::make_shared<Scope>(scope));
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, otherwise] = macro.parameters[i];
    const Value* given = arguments.take(i, name);
    Value value = given       ? *given
                  : otherwise ? evaluate(*otherwise)
                              : Value::undefined(fmt::format("parameter '{}' was not provided", name));
    scope_->set(name, std::move(value));
  }
  arguments.done(macro.text);
  std::string text = capture(macro.body);
  scope_ = outside;
  return text;
}

std::string Interpreter::capture(const Body& body) {
  std::string text;
  std::string* const outside = std::exchange(out_, &text);
  run(body);
  out_ = outside;
  return text;
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == Expression::Kind::name) return scope_->set(target.text, value);
  line_ = target.line;
  if (target.kind == Expression::Kind::attribute) {
    const Value space = evaluate(*target.parts[0]);
    const auto* attributes = space.get<std::shared_ptr<Namespace>>();
    if (attributes == nullptr)
      throw Fault(
          fmt::format("cannot assign attribute '{}': '{}' is not a namespace", target.text, target.parts[0]->text));
    budget_.bytes(sizeof(Value) + target.text.size());
    return (*attributes)->set(target.text, value);
  }
  const std::vector<Value> items = items_of(value, budget_);
  if (items.size() != target.parts.size())
    throw Fault(fmt::format("{} names for {} values", target.parts.size(), items.size()));
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i]);
}

void Interpreter::write(const Value& value) {
  if (const std::string* text = value.text()) {
    budget_.bytes(text->size());
    *out_ += *text;
  } else {
    *out_ += to_str(value, budget_);
  }
}

}  // namespace zeepo::jinja
