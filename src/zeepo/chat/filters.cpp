#include "zeepo/chat/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "zeepo/chat/operators.h"
#include "zeepo/chat/python_text.h"

namespace zeepo::jinja {
namespace {

constexpr std::array<std::string_view, 17> kNotSupported = {
    "attr",  "batch",     "center",   "filesizeformat", "forceescape", "format",    "groupby",  "pprint", "random",
    "slice", "striptags", "truncate", "urlencode",      "urlize",      "wordcount", "wordwrap", "xmlattr"};

const Value& argument(Arguments& arguments, std::string_view test) {
  const Value* value = arguments.take(0, "value");
  if (value == nullptr) throw Fault(fmt::format("the test '{}' needs a value", test));
  return *value;
}

// Of Jinja's names for comparisons, the sign; "" where `name` is none.
std::string_view comparison_of(std::string_view name) {
  struct Name {
    std::string_view name, sign;
  };
  constexpr std::array kNames = std::to_array<Name>({{"eq", "=="},
                                                     {"equalto", "=="},
                                                     {"==", "=="},
                                                     {"ne", "!="},
                                                     {"!=", "!="},
                                                     {"lt", "<"},
                                                     {"lessthan", "<"},
                                                     {"<", "<"},
                                                     {"le", "<="},
                                                     {"<=", "<="},
                                                     {"gt", ">"},
                                                     {">", ">"},
                                                     {"greaterthan", ">"},
                                                     {"ge", ">="},
                                                     {">=", ">="},
                                                     {"in", "in"}});
  const auto found = std::ranges::find(kNames, name, &Name::name);
  return found == kNames.end() ? "" : found->sign;
}

// "sameas": Python's identity, which small values have in common.
bool same(const Value& left, const Value& right) {
  if (left.data().index() != right.data().index()) return false;
  return std::visit(
      [&]<class T>(const T& one) {
        const T& other = *right.get<T>();
        if constexpr (std::is_same_v<T, Text>) {
          return *one.text == *other.text;
        } else if constexpr (std::is_same_v<T, None> || std::is_same_v<T, Undefined>) {
          return true;
        } else {
          return one == other;
        }
      },
      left.data());
}

bool is_iterable(const Value& value) { return value.is_undefined() || value.text() || value.list() || value.dict(); }

// Tests without an argument.
std::optional<bool> plain_test(std::string_view name, const Value& value) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.text() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "iterable") return is_iterable(value);
  if (name == "sequence")
    return value.is_undefined() || value.text() || value.dict() || (value.list() && value.list()->indexable());
  if (name == "number") return value.number().has_value();
  if (name == "integer") return value.get<std::int64_t>() != nullptr;
  if (name == "float") return value.get<double>() != nullptr;
  if (name == "boolean") return value.get<bool>() != nullptr;
  if (name == "true") return value.get<bool>() && *value.get<bool>();
  if (name == "false") return value.get<bool>() && !*value.get<bool>();
  if (name == "callable") return value.get<std::shared_ptr<const Callable>>() != nullptr || value.is_undefined();
  return std::nullopt;
}

std::int64_t remainder(const Value& value, const Value& by, Budget& budget) {
  const auto rest = binary("%", value, by, budget).number();
  return rest && *rest == 0 ? 0 : 1;
}

}  // namespace

Value apply_filter(std::string_view name, const Value& value, Arguments& arguments, Budget& budget) {
  budget.step();
  if (name == "default" || name == "d") {
    const Value *otherwise = arguments.take(0, "default_value"), *also_false = arguments.take(1, "boolean");
    arguments.done(name);
    const bool replace = value.is_undefined() || (also_false && is_true(*also_false) && !is_true(value));
    return !replace ? value : otherwise ? *otherwise : Value("");
  }
  if (auto text = apply_text_filter(name, value, arguments, budget)) return *text;
  if (auto list = apply_list_filter(name, value, arguments, budget)) return *list;
  if (std::ranges::find(kNotSupported, name) != kNotSupported.end())
    throw Fault(fmt::format("the filter '{}' is not supported", name));
  throw Fault(fmt::format("there is no filter '{}'", name));
}

bool apply_test(std::string_view name, const Value& value, Arguments& arguments, Budget& budget) {
  budget.step();
  if (const auto plain = plain_test(name, value)) {
    arguments.done(name);
    return *plain;
  }
  if (const std::string_view sign = comparison_of(name); !sign.empty())
    return compare(sign, value, argument(arguments, name), budget);
  if (name == "sameas") return same(value, argument(arguments, name));
  if (name == "even") return remainder(value, 2, budget) == 0;
  if (name == "odd") return remainder(value, 2, budget) != 0;
  if (name == "divisibleby") return remainder(value, argument(arguments, name), budget) == 0;
  if (name == "lower" || name == "upper") {
    const std::string text = to_str(value, budget), low = to_lower(text), high = to_upper(text);
    return low != high && text == (name == "lower" ? low : high);
  }
  if (name == "escaped" || name == "filter" || name == "test")
    throw Fault(fmt::format("the test '{}' is not supported", name));
  throw Fault(fmt::format("there is no test '{}'", name));
}

}  // namespace zeepo::jinja
