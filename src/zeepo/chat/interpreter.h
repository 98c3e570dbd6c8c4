// Renders a template's tree.
//
// Names are looked up as Jinja does: a loop's body, a macro and a generation block have names of their own and see
// those around them; "if" has none. One Interpreter renders once.
#pragma once

#include <cstddef>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/chat/budget.h"
#include "zeepo/chat/syntax.h"

namespace zeepo::jinja {

// A part of the text, in bytes.
struct TextRange {
  std::size_t begin, end;
};

struct Rendered {
  std::string text;
  std::vector<TextRange> generated;  // by {% generation %} blocks, in order
  bool generated_elsewhere = false;  // by such a block inside of a macro or a set: where in the text is not known
};

class Interpreter {
 public:
  // `now`: what strftime_now() tells. `name` is what errors call the template.
  Interpreter(std::string name, std::time_t now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set(const std::string& name, Value value);
  // Throws Error with the name and the line.
  Rendered render(const Body& body);

 private:
  struct Scope;
  using ScopePtr = std::shared_ptr<Scope>;
  enum class Flow { next, stop, skip };

  void add_builtins(std::time_t now);
  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run_loop(const Statement& loop);
  void run_set(const Statement& set);
  void run_with(const Statement& with);
  void run_generation(const Statement& generation);
  void define_macro(const Statement& macro);
  Value call_macro(const Statement& macro, const ScopePtr& scope, Arguments& arguments);
  std::string capture(const Body& body);
  void assign(const Expression& target, const Value& value);
  void write(const Value& value);

  Value evaluate(const Expression& expression);
  Value evaluate_operation(const Expression& expression);
  Value look_up(const std::string& name) const;
  Value evaluate_call(const Expression& call);
  Value evaluate_filter(const Expression& filter, const Value& input);
  Value evaluate_chain(const Expression& filter, const Value& input);
  bool evaluate_compare(const Expression& compare);
  Value evaluate_collection(const Expression& collection);
  Arguments arguments_of(const Expression& call);

  std::string name_;
  Budget budget_;
  ScopePtr builtins_, scope_;
  // What may refer to itself: emptied at the end.
  std::vector<ScopePtr> kept_scopes_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  Rendered rendered_;
  std::string* out_ = &rendered_.text;
  int line_ = 1;
};

}  // namespace zeepo::jinja
