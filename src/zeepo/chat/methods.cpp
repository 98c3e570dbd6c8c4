#include "zeepo/chat/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "zeepo/chat/operators.h"

namespace zeepo::jinja {
namespace {

// `depth`: of the value whose method it is.
Value method(std::string name, int depth, std::function<Value(Arguments&)> call) {
  return std::make_shared<const Callable>(Callable{std::move(name), std::move(call), depth});
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

Value refused(const std::string& name, std::string why) {
  return method(name, 0, [name, why](Arguments&) -> Value { throw Fault(fmt::format("{}(): {}", name, why)); });
}

Value view_of(const Dict& dict, List::Kind kind, Budget& budget) {
  budget.bytes(dict.entries().size() * (kind == List::Kind::items ? 6 : 1) * sizeof(Value));
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) {
    if (kind == List::Kind::keys) items.push_back(key);
    if (kind == List::Kind::values) items.push_back(value);
    if (kind == List::Kind::items) items.push_back(make_list({key, value}, List::Kind::tuple));
  }
  return make_list(std::move(items), kind);
}

std::optional<Value> dict_method(const std::shared_ptr<const Dict>& dict, const std::string& name, Budget& budget) {
  if (name == "get")
    return method(name, dict->depth(), [dict](Arguments& arguments) -> Value {
      const Value *key = arguments.take(0, "key"), *otherwise = arguments.take(1, "default");
      arguments.done("get");
      if (key == nullptr) throw Fault("get() needs a key");
      const Value* found = key->is_undefined() ? nullptr : dict->find(*key);
      return found ? *found : otherwise ? *otherwise : Value(None{});
    });
  const auto view = [&](List::Kind kind) {
    return method(name, dict->depth(), [dict, kind, name, &budget](Arguments& arguments) {
      arguments.done(name);
      return view_of(*dict, kind, budget);
    });
  };
  if (name == "items") return view(List::Kind::items);
  if (name == "keys") return view(List::Kind::keys);
  if (name == "values") return view(List::Kind::values);
  if (name == "copy")
    return method(name, dict->depth(), [dict](Arguments& arguments) -> Value {
      arguments.done("copy");
      return dict;
    });
  if (is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"}))
    return refused(name, "a template cannot change a dict");
  if (name == "fromkeys") return refused(name, "this method of dict is not supported");
  return std::nullopt;
}

std::optional<Value> list_method(const std::shared_ptr<const List>& list, const std::string& name, Budget& budget) {
  if (!list->indexable()) return std::nullopt;
  if (name == "index" || name == "count")
    return method(name, list->depth, [list, name, &budget](Arguments& arguments) -> Value {
      const Value* item = arguments.take(0, "value");
      arguments.done(name);
      if (item == nullptr) throw Fault(fmt::format("{}() needs a value", name));
      std::int64_t count = 0;
      for (std::size_t i = 0; i < list->items.size(); ++i) {
        if (!equal(list->items[i], *item, budget)) continue;
        if (name == "index") return static_cast<std::int64_t>(i);
        ++count;
      }
      if (name == "index") throw Fault("index(): the value is not in the list");
      return count;
    });
  if (list->kind != List::Kind::list) return std::nullopt;
  if (name == "copy")
    return method(name, list->depth, [list](Arguments& arguments) -> Value {
      arguments.done("copy");
      return list;
    });
  if (is_one_of(name, {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}))
    return refused(name, "a template cannot change a list");
  return std::nullopt;
}

std::optional<Value> loop_attribute(const std::shared_ptr<const Loop>& loop, const std::string& name) {
  const auto index = static_cast<std::int64_t>(loop->index), count = static_cast<std::int64_t>(loop->items->size());
  const auto neighbour = [&](std::int64_t at, const char* what) {
    if (at < 0 || at >= count) return Value::undefined(fmt::format("there is no {} item", what));
    return (*loop->items)[static_cast<std::size_t>(at)];
  };
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return count - index;
  if (name == "revindex0") return count - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index == count - 1;
  if (name == "length") return count;
  if (name == "previtem") return neighbour(index - 1, "previous");
  if (name == "nextitem") return neighbour(index + 1, "next");
  if (name == "depth") return 1;  // of recursive loops alone it is more, in Jinja too
  if (name == "depth0") return 0;
  if (name == "cycle")
    return method(name, loop->depth, [loop](Arguments& arguments) -> Value {
      const std::vector<Value>& values = arguments.positional;
      if (values.empty()) throw Fault("loop.cycle() needs values");
      return values[loop->index % values.size()];
    });
  if (name == "changed") return refused("loop.changed", "is not supported");
  return std::nullopt;
}

}  // namespace

std::optional<Value> own_attribute(const Value& value, const std::string& name, Budget& budget) {
  if (name.starts_with("__")) throw Fault(fmt::format("access to '{}' is not allowed", name));
  if (const auto* dict = value.get<std::shared_ptr<const Dict>>()) return dict_method(*dict, name, budget);
  if (const auto* list = value.get<std::shared_ptr<const List>>()) return list_method(*list, name, budget);
  if (const auto* loop = value.get<std::shared_ptr<const Loop>>()) return loop_attribute(*loop, name);
  if (const Text* text = value.get<Text>()) return text_method(*text, name, budget);
  if (const auto* space = value.get<std::shared_ptr<Namespace>>())
    if (const Value* found = (*space)->find(name)) return *found;
  return std::nullopt;
}

Value attribute_of(const Value& value, const std::string& name, Budget& budget) {
  must_be_defined(value);
  if (auto own = own_attribute(value, name, budget)) return *own;
  if (const Dict* dict = value.dict())
    if (const Value* found = dict->find(Value(name))) return *found;
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", type_name(value), name));
}

}  // namespace zeepo::jinja
