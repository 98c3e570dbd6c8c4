// The values of a Jinja template: Python's, as far as chat templates see them.
//
// A Value is cheap to copy; text, lists and dicts are shared and never change. A namespace changes, and may hold
// itself: the Interpreter keeps a list of all of them and empties them at its end. How deep lists and dicts are nested
// is bounded when they are made, so that whatever walks them may recurse.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace zeepo::jinja {

// What is wrong with a template or what it is given; the renderer adds the file's name and the line.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Value;
struct List;
class Dict;
struct Namespace;
struct Callable;
struct Loop;

// A name without a value. It prints as nothing, is false, and is a Fault in most other uses, which tells `what`.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};
struct Text {
  std::shared_ptr<const std::string> text;
  bool safe = false;  // Python's Markup, from the filter "safe": what is added to it is escaped
};

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Callable>,
                            std::shared_ptr<const Loop>>;

  Value() : data_(Undefined{}) {}
  Value(None) : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(std::int64_t value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(double value) : data_(value) {}
  Value(std::string text) : data_(Text{std::make_shared<const std::string>(std::move(text)), false}) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(Text text) : data_(std::move(text)) {}
  Value(std::shared_ptr<const List> list) : data_(std::move(list)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Namespace> attributes) : data_(std::move(attributes)) {}
  Value(std::shared_ptr<const Callable> callable) : data_(std::move(callable)) {}
  Value(std::shared_ptr<const Loop> loop) : data_(std::move(loop)) {}
  template <class T>
  Value(T* pointer) = delete;  // would become a bool
  static Value undefined(std::string what);

  const Data& data() const { return data_; }
  template <class T>
  const T* get() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  // Null where the value is of another type.
  const std::string* text() const;
  const List* list() const;
  const Dict* dict() const;
  // Whole numbers, and true and false as Python counts with them.
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;

 private:
  Data data_;
};

struct List {
  // A generator gives its items once, is always true and has no length.
  enum class Kind { list, tuple, range, keys, values, items, generator };
  Kind kind = Kind::list;
  std::vector<Value> items;
  int depth = 1;
  mutable std::size_t taken = 0;  // of a generator

  bool indexable() const { return kind == Kind::list || kind == Kind::tuple || kind == Kind::range; }
};

// In the order of insertion. Keys are text; whole numbers, booleans and none are told apart from text by their kind.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // A later value takes the place of an earlier one. Throws Fault for a key that Python cannot hash.
  void set(const Value& key, Value value);
  const Value* find(const Value& key) const;
  const Value* member(std::string_view key) const { return find(Value(std::string(key))); }
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> places_;
  int depth_ = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

struct Arguments {
  Arguments() = default;
  Arguments(std::vector<Value> by_place, std::vector<std::pair<std::string, Value>> by_name)
      : positional(std::move(by_place)), named(std::move(by_name)) {}

  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at this place or of this name, or null. Each that is given must be asked for before done().
  const Value* take(std::size_t place, std::string_view name);
  // Throws Fault when one was given that nobody has asked for.
  void done(std::string_view function) const;

 private:
  std::vector<std::string_view> asked_;
  std::size_t places_ = 0;
};

struct Callable {
  std::string name;
  std::function<Value(Arguments&)> call;
  int depth = 0;  // of the value whose method it is
};

// "loop" inside of a for.
struct Loop {
  std::shared_ptr<const std::vector<Value>> items;
  std::size_t index = 0;  // from 0
  int depth = 1;          // as a List's
};

constexpr int kDeepestValue = 100;
// Throw Fault when they would be nested deeper than that.
Value make_list(std::vector<Value> items, List::Kind kind = List::Kind::list);
Value make_dict(Dict dict);
int depth_of_list(const std::vector<Value>& items);
int depth_of(const Value& value);

// Python's name of the type: "str", "dict", ...
std::string_view type_name(const Value& value);
bool is_true(const Value& value);

}  // namespace zeepo::jinja
