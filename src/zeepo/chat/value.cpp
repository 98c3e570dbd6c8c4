#include "zeepo/chat/value.h"

#include <fmt/format.h>

#include <algorithm>

namespace zeepo::jinja {
namespace {

// Python's 1, 1.0 and True are one key.
std::string spell_key(const Value& key) {
  if (const std::string* text = key.text()) return "s" + *text;
  if (const auto whole = key.integer()) return fmt::format("i{}", *whole);
  if (key.is_none()) return "n";
  throw Fault(fmt::format("a {} as the key of a dict is not supported", type_name(key)));
}

void check_depth(int depth) {
  if (depth > kDeepestValue)
    throw Fault(fmt::format("lists or dicts inside of one another, deeper than {}", kDeepestValue));
}

}  // namespace

Value Value::undefined(std::string what) {
  Value value;
  value.data_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return value;
}

const std::string* Value::text() const {
  const Text* text = get<Text>();
  return text ? text->text.get() : nullptr;
}

const List* Value::list() const {
  const auto* list = get<std::shared_ptr<const List>>();
  return list ? list->get() : nullptr;
}

const Dict* Value::dict() const {
  const auto* dict = get<std::shared_ptr<const Dict>>();
  return dict ? dict->get() : nullptr;
}

std::optional<std::int64_t> Value::integer() const {
  if (const auto* whole = get<std::int64_t>()) return *whole;
  if (const auto* truth = get<bool>()) return *truth ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* number = get<double>()) return *number;
  if (const auto whole = integer()) return static_cast<double>(*whole);
  return std::nullopt;
}

void Dict::set(const Value& key, Value value) {
  const int depth = 1 + depth_of(value);
  check_depth(depth);
  depth_ = std::max(depth_, depth);
  const auto [place, added] = places_.try_emplace(spell_key(key), entries_.size());
  if (added) {
    entries_.emplace_back(key, std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

const Value* Dict::find(const Value& key) const {
  const auto place = places_.find(spell_key(key));
  return place == places_.end() ? nullptr : &entries_[place->second].second;
}

const Value* Namespace::find(std::string_view name) const {
  const auto found = std::ranges::find(attributes, name, [](const auto& attribute) { return attribute.first; });
  return found == attributes.end() ? nullptr : &found->second;
}

void Namespace::set(const std::string& name, Value value) {
  const auto found = std::ranges::find(attributes, name, [](const auto& attribute) { return attribute.first; });
  if (found != attributes.end()) {
    found->second = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
  }
}

const Value* Arguments::take(std::size_t place, std::string_view name) {
  places_ = std::max(places_, place + 1);
  asked_.push_back(name);
  const auto found = std::ranges::find(named, name, [](const auto& argument) { return argument.first; });
  if (place >= positional.size()) return found == named.end() ? nullptr : &found->second;
  if (found != named.end()) throw Fault(fmt::format("the argument \"{}\" is given twice", name));
  return &positional[place];
}

void Arguments::done(std::string_view function) const {
  if (positional.size() > places_)
    throw Fault(fmt::format("{}() takes at most {} arguments, {} are given", function, places_, positional.size()));
  for (const auto& [name, value] : named)
    if (std::ranges::find(asked_, name) == asked_.end())
      throw Fault(fmt::format("{}() has no argument \"{}\"", function, name));
}

Value make_list(std::vector<Value> items, List::Kind kind) {
  const int depth = depth_of_list(items);
  return std::make_shared<const List>(List{kind, std::move(items), depth});
}

int depth_of_list(const std::vector<Value>& items) {
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, 1 + depth_of(item));
  check_depth(depth);
  return depth;
}

Value make_dict(Dict dict) { return std::make_shared<const Dict>(std::move(dict)); }

int depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth();
  if (const auto* callable = value.get<std::shared_ptr<const Callable>>()) return (*callable)->depth;
  if (const auto* loop = value.get<std::shared_ptr<const Loop>>()) return (*loop)->depth;
  return 0;
}

std::string_view type_name(const Value& value) {
  struct Name {
    std::string_view operator()(const Undefined&) const { return "Undefined"; }
    std::string_view operator()(const None&) const { return "NoneType"; }
    std::string_view operator()(bool) const { return "bool"; }
    std::string_view operator()(std::int64_t) const { return "int"; }
    std::string_view operator()(double) const { return "float"; }
    std::string_view operator()(const Text& text) const { return text.safe ? "Markup" : "str"; }
    std::string_view operator()(const std::shared_ptr<const List>& list) const {
      constexpr std::string_view kNames[] = {"list",        "tuple",      "range",    "dict_keys",
                                             "dict_values", "dict_items", "generator"};
      return kNames[static_cast<std::size_t>(list->kind)];
    }
    std::string_view operator()(const std::shared_ptr<const Dict>&) const { return "dict"; }
    std::string_view operator()(const std::shared_ptr<Namespace>&) const { return "namespace"; }
    std::string_view operator()(const std::shared_ptr<const Callable>&) const { return "function"; }
    std::string_view operator()(const std::shared_ptr<const Loop>&) const { return "loop"; }
  };
  return std::visit(Name{}, value.data());
}

bool is_true(const Value& value) {
  struct Truth {
    bool operator()(const Undefined&) const { return false; }
    bool operator()(const None&) const { return false; }
    bool operator()(bool truth) const { return truth; }
    bool operator()(std::int64_t whole) const { return whole != 0; }
    bool operator()(double number) const { return number != 0; }
    bool operator()(const Text& text) const { return !text.text->empty(); }
    bool operator()(const std::shared_ptr<const List>& list) const {
      return list->kind == List::Kind::generator || !list->items.empty();
    }
    bool operator()(const std::shared_ptr<const Dict>& dict) const { return !dict->entries().empty(); }
    bool operator()(const std::shared_ptr<Namespace>&) const { return true; }
    bool operator()(const std::shared_ptr<const Callable>&) const { return true; }
    bool operator()(const std::shared_ptr<const Loop>&) const { return true; }
  };
  return std::visit(Truth{}, value.data());
}

}  // namespace zeepo::jinja
