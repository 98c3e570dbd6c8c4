// Filters that give text or a number.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "zeepo/chat/filters.h"
#include "zeepo/chat/json_text.h"
#include "zeepo/chat/methods.h"
#include "zeepo/chat/operators.h"
#include "zeepo/chat/python_text.h"

namespace zeepo::jinja {
namespace {

// What Jinja's soft_str does: text stays as it is, safe or not.
Text soft_text(const Value& value, Budget& budget) {
  if (const Text* text = value.get<Text>()) return *text;
  return {std::make_shared<const std::string>(to_str(value, budget)), false};
}

std::int64_t whole_argument(const Value* value, std::int64_t otherwise, std::string_view filter) {
  if (value == nullptr) return otherwise;
  const auto whole = value->integer();
  if (!whole) throw Fault(fmt::format("{}: a {} where a whole number is wanted", filter, type_name(*value)));
  return *whole;
}

Value changed(std::string_view name, const Value& value, Arguments& arguments, Budget& budget) {
  arguments.done(name);
  const Text text = soft_text(value, budget);
  budget.bytes(2 * text.text->size());
  std::string out = name == "upper"   ? to_upper(*text.text)
                    : name == "lower" ? to_lower(*text.text)
                    : name == "title" ? title_of_words(*text.text)
                                      : capitalize(*text.text);
  return Text{std::make_shared<const std::string>(std::move(out)), text.safe};
}

Value trim(const Value& value, Arguments& arguments, Budget& budget) {
  const Value* characters = arguments.take(0, "chars");
  arguments.done("trim");
  const Text text = soft_text(value, budget);
  std::optional<std::string_view> set;
  if (characters && !characters->is_none()) set = text_of(characters, "trim", "chars");
  budget.step(set.value_or("").size() * text.text->size() / 16);
  return Text{std::make_shared<const std::string>(strip(*text.text, Side::both, set)), text.safe};
}

Value replace(const Value& value, Arguments& arguments, Budget& budget) {
  const Value *from = arguments.take(0, "old"), *to = arguments.take(1, "new"), *most = arguments.take(2, "count");
  arguments.done("replace");
  if (from == nullptr || to == nullptr) throw Fault("replace needs \"old\" and \"new\"");
  // Without autoescape Jinja makes plain text of it, safe or not.
  const std::int64_t count = most && most->is_none() ? -1 : whole_argument(most, -1, "replace");
  return replaced(to_str(value, budget), to_str(*from, budget), to_str(*to, budget), count, budget);
}

Value indent(const Value& value, Arguments& arguments, Budget& budget) {
  const Value *width = arguments.take(0, "width"), *first = arguments.take(1, "first"),
              *blank = arguments.take(2, "blank");
  arguments.done("indent");
  std::string margin;
  if (width && width->text()) {
    margin = *width->text();
  } else {
    const std::int64_t count = std::max<std::int64_t>(0, whole_argument(width, 4, "indent"));
    budget.bytes(static_cast<std::size_t>(count));
    margin.assign(static_cast<std::size_t>(count), ' ');
  }
  std::string text = to_str(value, budget);
  text += '\n';
  TextBuilder out(budget);
  if (first && is_true(*first)) out.append(margin);
  const bool also_blank = blank && is_true(*blank);
  for (std::size_t begin = 0, number = 0; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    if (number > 0) {
      out.append('\n');
      if (also_blank || end > begin) out.append(margin);
    }
    out.append(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  return out.take();
}

Value to_json(const Value& value, Arguments& arguments, Budget& budget) {
  JsonStyle style;
  // In the order of transformers' own filter.
  const Value *ascii = arguments.take(0, "ensure_ascii"), *levels = arguments.take(1, "indent"),
              *separators = arguments.take(2, "separators"), *sort_keys = arguments.take(3, "sort_keys");
  arguments.done("tojson");
  style.ascii = ascii && is_true(*ascii);
  style.sort_keys = sort_keys && is_true(*sort_keys);
  if (levels && !levels->is_none()) {
    style.lines = true;
    style.between = std::string(1, ',');
    const std::int64_t width = levels->text() ? 0 : std::max<std::int64_t>(0, whole_argument(levels, 0, "tojson"));
    budget.bytes(static_cast<std::size_t>(width));
    style.indent = levels->text() ? *levels->text() : std::string(static_cast<std::size_t>(width), ' ');
  }
  if (separators && !separators->is_none()) {
    const List* pair = separators->list();
    if (pair == nullptr || pair->items.size() != 2) throw Fault("tojson: separators must be two texts");
    style.between = text_of(&pair->items[0], "tojson", "separators");
    style.after_key = text_of(&pair->items[1], "tojson", "separators");
  }
  must_be_defined(value);
  TextBuilder out(budget);
  append_json(value, style, out);
  return out.take();
}

Value to_whole(const Value& value, Arguments& arguments) {
  const Value *otherwise = arguments.take(0, "default"), *base = arguments.take(1, "base");
  arguments.done("int");
  if (whole_argument(base, 10, "int") != 10) throw Fault("int: a base other than 10 is not supported");
  const Value fallback = otherwise ? *otherwise : Value(0);
  if (const auto whole = value.integer()) return *whole;
  double number = 0;
  if (const std::string* text = value.text()) {
    const std::string_view digits = strip(*text, Side::both);
    const char *begin = digits.data() + (digits.starts_with('+') ? 1 : 0), *end = digits.data() + digits.size();
    std::int64_t whole = 0;
    if (const auto read = std::from_chars(begin, end, whole); read.ec == std::errc{} && read.ptr == end) return whole;
    const auto read = std::from_chars(begin, end, number);
    if (read.ec != std::errc{} || read.ptr != end) return fallback;
  } else if (const auto* real = value.get<double>()) {
    number = *real;
  } else {
    must_be_defined(value);
    return fallback;
  }
  return std::abs(number) < 9.2e18 ? Value(static_cast<std::int64_t>(number)) : fallback;
}

Value to_real(const Value& value, Arguments& arguments) {
  const Value* otherwise = arguments.take(0, "default");
  arguments.done("float");
  if (const auto number = value.number()) return *number;
  if (const std::string* text = value.text()) {
    const std::string_view digits = strip(*text, Side::both);
    const char* end = digits.data() + digits.size();
    double number = 0;
    const auto read = std::from_chars(digits.data() + (digits.starts_with('+') ? 1 : 0), end, number);
    if (read.ec == std::errc{} && read.ptr == end) return number;
  }
  must_be_defined(value);
  return otherwise ? *otherwise : Value(0.0);
}

Value rounded(const Value& value, Arguments& arguments) {
  const std::int64_t digits = whole_argument(arguments.take(0, "precision"), 0, "round");
  const Value* method = arguments.take(1, "method");
  arguments.done("round");
  const std::string how = method ? text_of(method, "round", "method") : "common";
  const auto number = value.number();
  if (!number) throw Fault(fmt::format("round: a {} is no number", type_name(value)));
  if (digits != 0) throw Fault("round: a precision other than 0 is not supported");
  if (how == "ceil") return std::ceil(*number);
  if (how == "floor") return std::floor(*number);
  if (const auto whole = value.integer()) return *whole;
  return std::nearbyint(*number);  // half to even, as Python
}

}  // namespace

std::optional<Value> apply_text_filter(std::string_view name, const Value& value, Arguments& arguments,
                                       Budget& budget) {
  if (name == "upper" || name == "lower" || name == "title" || name == "capitalize")
    return changed(name, value, arguments, budget);
  if (name == "trim") return trim(value, arguments, budget);
  if (name == "replace") return replace(value, arguments, budget);
  if (name == "indent") return indent(value, arguments, budget);
  if (name == "tojson") return to_json(value, arguments, budget);
  if (name == "int") return to_whole(value, arguments);
  if (name == "float") return to_real(value, arguments);
  if (name == "round") return rounded(value, arguments);
  if (name == "string") {
    arguments.done(name);
    return soft_text(value, budget);
  }
  if (name == "safe") {
    arguments.done(name);
    return Text{std::make_shared<const std::string>(to_str(value, budget)), true};
  }
  if (name == "escape" || name == "e") {
    arguments.done(name);
    const Text text = soft_text(value, budget);
    if (text.safe) return text;
    budget.bytes(6 * text.text->size());
    return Text{std::make_shared<const std::string>(escape_html(*text.text)), true};
  }
  if (name == "abs") {
    arguments.done(name);
    const auto number = value.number();
    if (!number) throw Fault(fmt::format("abs: a {} is no number", type_name(value)));
    return *number < 0 ? negative(value) : value.get<bool>() ? Value(*value.integer()) : value;
  }
  return std::nullopt;
}

}  // namespace zeepo::jinja
