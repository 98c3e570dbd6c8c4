// Filters over lists and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "zeepo/chat/filters.h"
#include "zeepo/chat/methods.h"
#include "zeepo/chat/operators.h"
#include "zeepo/chat/python_text.h"

namespace zeepo::jinja {
namespace {

// Of map and select: what is false, none too, has no items.
std::vector<Value> items_or_none(const Value& value, Budget& budget) {
  return is_true(value) ? items_of(value, budget) : std::vector<Value>{};
}

bool flag(const Value* value) { return value != nullptr && is_true(*value); }

// Text without regard to case, as sort, unique, min and max compare it.
Value folded(const Value& value, bool case_sensitive) {
  const std::string* text = value.text();
  return text == nullptr || case_sensitive ? value : Value(to_lower(*text));
}

void sort_by(std::vector<Value>& items, const std::vector<Value>& keys, bool reverse, Budget& budget) {
  std::vector<std::size_t> places(items.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
  std::ranges::stable_sort(places, [&](std::size_t a, std::size_t b) {
    const int sign = order(keys[a], keys[b], budget);
    return reverse ? sign > 0 : sign < 0;
  });
  std::vector<Value> sorted;
  for (const std::size_t place : places) sorted.push_back(items[place]);
  items = std::move(sorted);
}

Value sort(const Value& value, Arguments& arguments, Budget& budget) {
  const bool reverse = flag(arguments.take(0, "reverse")), case_sensitive = flag(arguments.take(1, "case_sensitive"));
  const Value* attribute = arguments.take(2, "attribute");
  arguments.done("sort");
  std::vector<Value> items = items_of(value, budget), keys;
  for (const Value& item : items)
    keys.push_back(folded(attribute ? path_of(item, *attribute, budget) : item, case_sensitive));
  sort_by(items, keys, reverse, budget);
  return make_list(std::move(items));
}

Value sort_dict(const Value& value, Arguments& arguments, Budget& budget) {
  const bool case_sensitive = flag(arguments.take(0, "case_sensitive"));
  const Value* by = arguments.take(1, "by");
  const bool reverse = flag(arguments.take(2, "reverse"));
  arguments.done("dictsort");
  must_be_defined(value);
  const Dict* dict = value.dict();
  if (dict == nullptr) throw Fault(fmt::format("dictsort: a {} is not a dict", type_name(value)));
  const bool by_value = by && text_of(by, "dictsort", "by") == "value";
  budget.bytes(dict->entries().size() * 6 * sizeof(Value));
  std::vector<Value> items, keys;
  for (const auto& [key, item] : dict->entries()) {
    items.push_back(make_list({key, item}, List::Kind::tuple));
    keys.push_back(folded(by_value ? item : key, case_sensitive));
  }
  sort_by(items, keys, reverse, budget);
  return make_list(std::move(items));
}

Value unique(const Value& value, Arguments& arguments, Budget& budget) {
  const bool case_sensitive = flag(arguments.take(0, "case_sensitive"));
  const Value* attribute = arguments.take(1, "attribute");
  arguments.done("unique");
  std::vector<Value> kept;
  Dict seen;
  for (const Value& item : items_of(value, budget)) {
    const Value key = folded(attribute ? path_of(item, *attribute, budget) : item, case_sensitive);
    if (seen.find(key) != nullptr) continue;
    seen.set(key, true);
    kept.push_back(item);
  }
  return make_list(std::move(kept), List::Kind::generator);
}

Value extreme(bool largest, const Value& value, Arguments& arguments, Budget& budget) {
  const bool case_sensitive = flag(arguments.take(0, "case_sensitive"));
  const Value* attribute = arguments.take(1, "attribute");
  arguments.done(largest ? "max" : "min");
  const std::vector<Value> items = items_of(value, budget);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto key = [&](const Value& item) {
    return folded(attribute ? path_of(item, *attribute, budget) : item, case_sensitive);
  };
  const Value* best = &items.front();
  for (const Value& item : items) {
    const int sign = order(key(item), key(*best), budget);
    if (largest ? sign > 0 : sign < 0) best = &item;
  }
  return *best;
}

Value join(const Value& value, Arguments& arguments, Budget& budget) {
  const Value *between = arguments.take(0, "d"), *attribute = arguments.take(1, "attribute");
  arguments.done("join");
  const std::string separator = between ? to_str(*between, budget) : "";
  TextBuilder out(budget);
  bool first = true;
  for (const Value& item : items_of(value, budget)) {
    if (!first) out.append(separator);
    first = false;
    append_str(attribute ? path_of(item, *attribute, budget) : item, out);
  }
  return out.take();
}

Value map(const Value& value, Arguments& arguments, Budget& budget) {
  std::vector<Value> out;
  const std::vector<Value> items = items_or_none(value, budget);
  const bool by_attribute = arguments.positional.empty();
  if (by_attribute) {
    const Value *attribute = arguments.take(0, "attribute"), *otherwise = arguments.take(1, "default");
    arguments.done("map");
    if (attribute == nullptr) throw Fault("map needs a filter's name or attribute=");
    for (const Value& item : items) {
      Value found = path_of(item, *attribute, budget);
      out.push_back(found.is_undefined() && otherwise ? *otherwise : std::move(found));
    }
  } else {
    const std::string name = text_of(&arguments.positional.front(), "map", "name");
    Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
    for (const Value& item : items) {
      const DepthScope depth(budget);
      Arguments own = rest;
      out.push_back(apply_filter(name, item, own, budget));
    }
  }
  return make_list(std::move(out), List::Kind::generator);
}

// select, reject, selectattr, rejectattr: those that pass a test, or that are true.
Value select(std::string_view filter, const Value& value, Arguments& arguments, Budget& budget) {
  const bool by_attribute = filter.ends_with("attr"), wanted = filter.starts_with("select");
  const std::size_t used = by_attribute ? 1 : 0;
  if (arguments.positional.size() < used) throw Fault(fmt::format("{} needs an attribute", filter));
  std::vector<Value> kept;
  for (const Value& item : items_or_none(value, budget)) {
    const Value tried = by_attribute ? path_of(item, arguments.positional.front(), budget) : item;
    bool passes = false;
    if (arguments.positional.size() == used) {
      passes = is_true(tried);
    } else {
      const DepthScope depth(budget);
      const auto first = arguments.positional.begin() + static_cast<std::ptrdiff_t>(used);
      Arguments rest{{first + 1, arguments.positional.end()}, arguments.named};
      passes = apply_test(text_of(&*first, filter, "test"), tried, rest, budget);
    }
    if (passes == wanted) kept.push_back(item);
  }
  return make_list(std::move(kept), List::Kind::generator);
}

Value sum(const Value& value, Arguments& arguments, Budget& budget) {
  const Value *attribute = arguments.take(0, "attribute"), *start = arguments.take(1, "start");
  arguments.done("sum");
  Value total = start ? *start : Value(0);
  for (const Value& item : items_of(value, budget))
    total = binary("+", total, attribute && !attribute->is_none() ? path_of(item, *attribute, budget) : item, budget);
  return total;
}

Value reverse(const Value& value, Arguments& arguments, Budget& budget) {
  arguments.done("reverse");
  if (value.text()) return slice_of(value, None{}, None{}, -1, budget);
  std::vector<Value> items = items_of(value, budget);
  std::ranges::reverse(items);
  return make_list(std::move(items), List::Kind::generator);
}

Value end_of(bool last, const Value& value, Arguments& arguments, Budget& budget) {
  arguments.done(last ? "last" : "first");
  const List* list = value.list();
  const bool generator = list && list->kind == List::Kind::generator;
  if (last && generator) throw Fault("last: a generator has no end; the filter \"list\" makes a list of it");
  if (generator && list->taken < list->items.size()) return list->items[list->taken++];
  const std::vector<Value> items = items_of(value, budget);
  if (items.empty()) return Value::undefined(fmt::format("No {} item, sequence was empty.", last ? "last" : "first"));
  return last ? items.back() : items.front();
}

}  // namespace

Value path_of(const Value& value, const Value& path, Budget& budget) {
  if (path.integer()) return item_of(value, path, budget);
  const std::string& text = text_of(&path, "attribute", "name");
  Value at = value;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    std::int64_t place = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), place);
    const bool number =
        !part.empty() && part[0] != '-' && read.ec == std::errc{} && read.ptr == part.data() + part.size();
    at = item_of(at, number ? Value(place) : Value(part), budget);
    begin = end + 1;
  }
  return at;
}

std::optional<Value> apply_list_filter(std::string_view name, const Value& value, Arguments& arguments,
                                       Budget& budget) {
  if (name == "length" || name == "count") {
    arguments.done(name);
    return length_of(value);
  }
  if (name == "first" || name == "last") return end_of(name == "last", value, arguments, budget);
  if (name == "list") {
    arguments.done(name);
    return make_list(items_of(value, budget));
  }
  if (name == "items") {
    arguments.done(name);
    if (value.is_undefined()) return make_list({}, List::Kind::generator);
    if (value.dict() == nullptr) throw Fault("Can only get item pairs from a mapping.");
    const Value view = attribute_of(value, "items", budget);
    Arguments none;
    const Value pairs = (*view.get<std::shared_ptr<const Callable>>())->call(none);
    return make_list(pairs.list()->items, List::Kind::generator);
  }
  if (name == "join") return join(value, arguments, budget);
  if (name == "map") return map(value, arguments, budget);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return select(name, value, arguments, budget);
  if (name == "sort") return sort(value, arguments, budget);
  if (name == "dictsort") return sort_dict(value, arguments, budget);
  if (name == "unique") return unique(value, arguments, budget);
  if (name == "min" || name == "max") return extreme(name == "max", value, arguments, budget);
  if (name == "sum") return sum(value, arguments, budget);
  if (name == "reverse") return reverse(value, arguments, budget);
  return std::nullopt;
}

}  // namespace zeepo::jinja
