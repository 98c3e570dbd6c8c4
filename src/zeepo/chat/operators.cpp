#include "zeepo/chat/operators.h"

#include <fmt/format.h>

#include <cmath>

#include "zeepo/chat/methods.h"
#include "zeepo/chat/python_text.h"

namespace zeepo::jinja {
namespace {

[[noreturn]] void unsupported(std::string_view sign, const Value& left, const Value& right) {
  must_be_defined(left);
  must_be_defined(right);
  throw Fault(fmt::format("'{}' of {} and {} is not possible", sign, type_name(left), type_name(right)));
}

Value concatenated(const Value& left, const Value& right, Budget& budget) {
  const Text &a = *left.get<Text>(), &b = *right.get<Text>();
  budget.bytes(a.text->size() + b.text->size());
  if (a.safe == b.safe) {
    Text both{std::make_shared<const std::string>(*a.text + *b.text), a.safe};
    return both;
  }
  budget.bytes(5 * (a.safe ? b : a).text->size());
  const std::string text = (a.safe ? *a.text : escape_html(*a.text)) + (b.safe ? *b.text : escape_html(*b.text));
  return Text{std::make_shared<const std::string>(text), true};
}

Value joined_lists(const Value& left, const Value& right, Budget& budget) {
  const List &a = *left.list(), &b = *right.list();
  if (a.kind != b.kind || (a.kind != List::Kind::list && a.kind != List::Kind::tuple)) unsupported("+", left, right);
  budget.bytes((a.items.size() + b.items.size()) * sizeof(Value));
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return make_list(std::move(items), a.kind);
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
  const std::size_t count = times < 0 ? 0 : static_cast<std::size_t>(times);
  const std::string* text = value.text();
  const std::size_t one = text ? text->size() : value.list()->items.size() * sizeof(Value);
  if (one == 0 || count == 0) return text ? Value("") : make_list({}, value.list()->kind);
  if (count > static_cast<std::size_t>(Budget::kBytes) / one)
    budget.bytes(static_cast<std::size_t>(Budget::kBytes) + 1);
  budget.bytes(count * one);
  if (text) {
    std::string out;
    out.reserve(count * one);
    for (std::size_t i = 0; i < count; ++i) out += *text;
    return out;
  }
  std::vector<Value> items;
  for (std::size_t i = 0; i < count; ++i)
    items.insert(items.end(), value.list()->items.begin(), value.list()->items.end());
  return make_list(std::move(items), value.list()->kind);
}

Value whole_numbers(std::string_view sign, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (sign == "+") {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (sign == "-") {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (sign == "*") {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (sign == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    result = 1;
    for (std::int64_t i = 0; i < b && !overflows && a != 1 && (a != 0 || i == 0); ++i) {
      if (a == -1 && i == 2) return b % 2 == 0 ? 1 : -1;
      overflows = __builtin_mul_overflow(result, a, &result);
    }
  } else {
    if (b == 0) throw Fault("division by zero");
    if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) {  // the least number has no opposite
      if (sign == "%") return 0;
      overflows = __builtin_sub_overflow(std::int64_t{0}, a, &result);
    } else {
      const bool adjust = a % b != 0 && (a % b < 0) != (b < 0);  // Python rounds down
      result = sign == "//" ? a / b - (adjust ? 1 : 0) : a % b + (adjust ? b : 0);
    }
  }
  if (overflows) throw Fault(fmt::format("{} {} {} does not fit 64 bits", a, sign, b));
  return result;
}

Value real_numbers(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") return std::pow(a, b);
  if (b == 0) throw Fault("division by zero");
  if (sign == "/") return a / b;
  const double rest = std::fmod(a, b), adjusted = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  if (sign == "%") return adjusted;
  return std::floor((a - adjusted) / b + 0.5);
}

bool equal_lists(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!equal(a[i], b[i], budget)) return false;
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other, budget)) return false;
  }
  return true;
}

// The places of value[begin:end:step] in a sequence of `length`, by Python's rules.
std::vector<std::size_t> places(std::int64_t length, const Value& begin, const Value& end, const Value& step,
                                Budget& budget) {
  const auto number = [](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    must_be_defined(value);
    const auto whole = value.integer();
    if (!whole) throw Fault(fmt::format("a {} as a place in [:] is not possible", type_name(value)));
    return *whole;
  };
  const std::int64_t by = number(step, 1);
  if (by == 0) throw Fault("a step of 0 in [::]");
  const auto clamp = [&](std::int64_t place) {
    if (place < 0) place = place < -length ? -1 : place + length;
    if (by < 0) return std::min(place, length - 1);
    return std::min(std::max<std::int64_t>(place, 0), length);
  };
  const std::int64_t first = begin.is_none() ? (by < 0 ? length - 1 : 0) : clamp(number(begin, 0));
  const std::int64_t last = end.is_none() ? (by < 0 ? -1 : length) : clamp(number(end, 0));
  std::vector<std::size_t> chosen;
  for (std::int64_t place = first; by > 0 ? place < last : place > last;) {
    chosen.push_back(static_cast<std::size_t>(place));
    if (__builtin_add_overflow(place, by, &place)) break;
  }
  budget.bytes(chosen.size() * sizeof(std::size_t));
  return chosen;
}

}  // namespace

void must_be_defined(const Value& value) {
  const Undefined* undefined = value.get<Undefined>();
  if (undefined != nullptr) throw Fault(undefined->what ? *undefined->what : "a value is undefined");
}

Value binary(std::string_view sign, const Value& left, const Value& right, Budget& budget) {
  const auto a = left.integer(), b = right.integer();
  if (a && b) return whole_numbers(sign, *a, *b);
  const auto x = left.number(), y = right.number();
  if (x && y) return real_numbers(sign, *x, *y);
  if (sign == "+" && left.text() && right.text()) return concatenated(left, right, budget);
  if (sign == "+" && left.list() && right.list()) return joined_lists(left, right, budget);
  const auto repeats = [](const Value& value) {
    return value.text() || (value.list() && value.list()->indexable() && value.list()->kind != List::Kind::range);
  };
  if (sign == "*" && repeats(left) && b) return repeated(left, *b, budget);
  if (sign == "*" && a && repeats(right)) return repeated(right, *a, budget);
  if (sign == "%" && left.text()) throw Fault("'%' of a text (printf) is not supported");
  unsupported(sign, left, right);
}

Value negative(const Value& value) {
  if (const auto whole = value.integer()) return whole_numbers("-", 0, *whole);
  if (const auto number = value.number()) return -*number;
  must_be_defined(value);
  throw Fault(fmt::format("'-' of a {} is not possible", type_name(value)));
}

bool equal(const Value& left, const Value& right, Budget& budget) {
  budget.step();
  const auto a = left.integer(), b = right.integer();
  if (a && b) return *a == *b;
  const auto x = left.number(), y = right.number();
  if (x && y) return *x == *y;
  if (left.text() && right.text()) return *left.text() == *right.text();
  if (left.dict() && right.dict()) return equal_dicts(*left.dict(), *right.dict(), budget);
  if (left.list() && right.list() && left.list()->indexable() && left.list()->kind == right.list()->kind)
    return equal_lists(left.list()->items, right.list()->items, budget);
  if (left.is_none() || left.is_undefined()) return left.data().index() == right.data().index();
  if (left.data().index() != right.data().index()) return false;
  if (const auto* one = left.get<std::shared_ptr<Namespace>>()) return *one == *right.get<std::shared_ptr<Namespace>>();
  if (const auto* one = left.get<std::shared_ptr<const List>>())
    return *one == *right.get<std::shared_ptr<const List>>();
  return false;
}

int order(const Value& left, const Value& right, Budget& budget) {
  budget.step();
  const auto sign_of = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
  const auto a = left.integer(), b = right.integer();
  if (a && b) return sign_of(*a, *b);
  const auto x = left.number(), y = right.number();
  if (x && y) return sign_of(*x, *y);
  if (left.text() && right.text()) return sign_of(left.text()->compare(*right.text()), 0);
  const List *one = left.list(), *other = right.list();
  if (one && other && one->kind == other->kind && one->indexable()) {
    for (std::size_t i = 0; i < one->items.size() && i < other->items.size(); ++i)
      if (!equal(one->items[i], other->items[i], budget)) return order(one->items[i], other->items[i], budget);
    return sign_of(one->items.size(), other->items.size());
  }
  unsupported("<", left, right);
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.text()) {
    const std::string* part = item.text();
    if (part == nullptr) unsupported("in", item, container);
    budget.step(text->size() / 64);
    return text->find(*part) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (item.list() || item.dict() || item.get<double>()) throw Fault(fmt::format("a {} is no key", type_name(item)));
    if (!item.text() && !item.integer() && !item.is_none()) return false;
    return dict->find(item) != nullptr;
  }
  if (container.is_undefined()) return false;
  for (const Value& one : items_of(container, budget))
    if (equal(one, item, budget)) return true;
  return false;
}

bool compare(std::string_view sign, const Value& left, const Value& right, Budget& budget) {
  if (sign == "==") return equal(left, right, budget);
  if (sign == "!=") return !equal(left, right, budget);
  if (sign == "in") return contains(right, left, budget);
  if (sign == "not in") return !contains(right, left, budget);
  if (const auto x = left.number(), y = right.number(); x && y && (std::isnan(*x) || std::isnan(*y))) return false;
  const int sign_of = order(left, right, budget);
  if (sign == "<") return sign_of < 0;
  if (sign == "<=") return sign_of <= 0;
  return sign == ">" ? sign_of > 0 : sign_of >= 0;
}

std::vector<Value> items_of(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  std::vector<Value> items;
  if (const List* list = value.list()) {
    budget.bytes(list->items.size() * sizeof(Value));
    if (list->kind != List::Kind::generator) return list->items;
    items.assign(list->items.begin() + static_cast<std::ptrdiff_t>(list->taken), list->items.end());
    list->taken = list->items.size();
  } else if (const Dict* dict = value.dict()) {
    budget.bytes(dict->entries().size() * sizeof(Value));
    for (const auto& entry : dict->entries()) items.push_back(entry.first);
  } else if (const std::string* text = value.text()) {
    budget.bytes(text->size() * 2 * sizeof(Value));
    const auto starts = character_starts(*text, budget);
    for (std::size_t i = 0; i + 1 < starts.size(); ++i)
      items.emplace_back(text->substr(starts[i], starts[i + 1] - starts[i]));
  } else {
    throw Fault(fmt::format("a {} is not a list, dict or text to go over", type_name(value)));
  }
  return items;
}

std::int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const std::string* text = value.text()) return length_in_characters(*text);
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->entries().size());
  const List* list = value.list();
  if (list != nullptr && list->kind != List::Kind::generator) return static_cast<std::int64_t>(list->items.size());
  throw Fault(fmt::format("a {} has no length", type_name(value)));
}

Value item_of(const Value& value, const Value& key, Budget& budget) {
  must_be_defined(value);
  if (const Dict* dict = value.dict()) {
    if (key.text() || key.integer() || key.is_none())
      if (const Value* found = dict->find(key)) return *found;
  } else if (const auto place = key.integer()) {
    const bool indexable = value.text() || (value.list() && value.list()->indexable());
    const std::int64_t length = indexable ? length_of(value) : 0, at = *place < 0 ? *place + length : *place;
    if (at >= 0 && at < length) {
      if (value.list()) return value.list()->items[static_cast<std::size_t>(at)];
      const auto starts = character_starts(*value.text(), budget);
      const std::size_t begin = starts[static_cast<std::size_t>(at)], end = starts[static_cast<std::size_t>(at) + 1];
      return value.text()->substr(begin, end - begin);
    }
    return Value::undefined(fmt::format("{} object has no element {}", type_name(value), *place));
  }
  if (const std::string* name = key.text()) {
    if (auto found = own_attribute(value, *name, budget)) return *found;
    return Value::undefined(fmt::format("'{} object' has no attribute '{}'", type_name(value), *name));
  }
  return Value::undefined(fmt::format("{} object has no such element", type_name(value)));
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  must_be_defined(value);
  if (const std::string* text = value.text()) {
    const auto starts = character_starts(*text, budget);
    std::string out;
    for (const std::size_t i : places(static_cast<std::int64_t>(starts.size()) - 1, begin, end, step, budget))
      out += text->substr(starts[i], starts[i + 1] - starts[i]);
    budget.bytes(out.size());
    return Text{std::make_shared<const std::string>(std::move(out)), value.get<Text>()->safe};
  }
  const List* list = value.list();
  if (list == nullptr || !list->indexable()) return Value::undefined(fmt::format("a {} has no [:]", type_name(value)));
  std::vector<Value> items;
  const auto chosen = places(static_cast<std::int64_t>(list->items.size()), begin, end, step, budget);
  budget.bytes(chosen.size() * sizeof(Value));
  for (const std::size_t i : chosen) items.push_back(list->items[i]);
  return make_list(std::move(items), list->kind);
}

}  // namespace zeepo::jinja
