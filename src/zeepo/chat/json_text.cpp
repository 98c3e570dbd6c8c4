#include "zeepo/chat/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "zeepo/base/error.h"
#include "zeepo/chat/python_text.h"
#include "zeepo/data/utf8.h"

namespace zeepo::jinja {
namespace {

// What nlohmann's parser reads, as values. Lists and dicts that are still open are a stack.
class Reader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Reader(std::string_view name) : name_(name) {}

  Value take() { return std::move(root_); }

  bool null() override { return add(None{}); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) refuse(fmt::format("{}", value));
    return add(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == string_t::npos) refuse(text);
    return add(value);
  }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(true); }
  bool start_array(std::size_t) override { return open(false); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    Dict dict = std::move(open_.back().dict);
    open_.pop_back();
    return add(make_dict(std::move(dict)));
  }
  bool end_array() override {
    std::vector<Value> items = std::move(open_.back().items);
    open_.pop_back();
    return add(make_list(std::move(items)));
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    throw Error("{}: not JSON: {}", name_, error.what());
  }

 private:
  struct Open {
    bool is_dict;
    Dict dict;
    std::vector<Value> items;
    std::string key;
  };

  [[noreturn]] void refuse(std::string_view number) const {
    throw Error("{}: {}: whole numbers of more than 64 bits are not supported", name_, number);
  }
  bool open(bool is_dict) {
    if (open_.size() == static_cast<std::size_t>(kDeepestValue))
      throw Error("{}: JSON nested deeper than {}", name_, kDeepestValue);
    open_.push_back({is_dict, {}, {}, {}});
    return true;
  }
  bool add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_dict) {
      open_.back().dict.set(Value(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::string_view name_;
  std::vector<Open> open_;
  Value root_;
};

void append_text(std::string_view text, const JsonStyle& style, TextBuilder& out) {
  std::string quoted = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const auto code = static_cast<std::uint32_t>(c.value);
    switch (code) {
      case '"': quoted += "\\\""; break;
      case '\\': quoted += "\\\\"; break;
      case '\n': quoted += "\\n"; break;
      case '\r': quoted += "\\r"; break;
      case '\t': quoted += "\\t"; break;
      case '\b': quoted += "\\b"; break;
      case '\f': quoted += "\\f"; break;
      default:
        if (code < 0x20 || (style.ascii && code >= 0x7F && code < 0x10000 && code != 0x7F)) {
          quoted += fmt::format("\\u{:04x}", code);
        } else if (style.ascii && code >= 0x10000) {
          quoted += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
        } else {
          quoted += text.substr(at, c.bytes);
        }
    }
    at += c.bytes;
  }
  quoted += '"';
  out.append(quoted);
}

std::string spell_json_float(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return spell_float(number);
}

// Keys that are no text become text, as Python makes it.
std::string json_key(const Value& key) {
  if (const std::string* text = key.text()) return *text;
  if (key.is_none()) return "null";
  if (const bool* truth = key.get<bool>()) return *truth ? "true" : "false";
  return fmt::format("{}", key.integer().value_or(0));
}

void new_line(const JsonStyle& style, TextBuilder& out, int level) {
  if (!style.lines) return;
  out.append('\n');
  for (int i = 0; i < level; ++i) out.append(style.indent);
}

// Items between two brackets; each(i) writes one.
template <class Each>
void append_between(std::string_view brackets, std::size_t count, const JsonStyle& style, TextBuilder& out, int level,
                    Each&& each) {
  out.append(brackets[0]);
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out.append(style.between);
    new_line(style, out, level + 1);
    each(i);
  }
  if (count > 0) new_line(style, out, level);
  out.append(brackets[1]);
}

void append_object(const Dict& dict, const JsonStyle& style, TextBuilder& out, int level) {
  std::vector<const Dict::Entry*> entries;
  for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
  if (style.sort_keys)
    std::ranges::stable_sort(entries, {}, [](const Dict::Entry* entry) { return json_key(entry->first); });
  append_between("{}", entries.size(), style, out, level, [&](std::size_t i) {
    append_text(json_key(entries[i]->first), style, out);
    out.append(style.after_key);
    append_json(entries[i]->second, style, out, level + 1);
  });
}

}  // namespace

Value parse_json_value(std::string_view text, std::string_view name) {
  Reader reader(name);
  nlohmann::json::sax_parse(text, &reader);
  return reader.take();
}

void append_json(const Value& value, const JsonStyle& style, TextBuilder& out, int level) {
  out.budget().step();
  if (value.is_none()) return out.append("null");
  if (const bool* truth = value.get<bool>()) return out.append(*truth ? "true" : "false");
  if (const auto* whole = value.get<std::int64_t>()) return out.append(fmt::format("{}", *whole));
  if (const auto* number = value.get<double>()) return out.append(spell_json_float(*number));
  if (const std::string* text = value.text()) return append_text(*text, style, out);
  if (const Dict* dict = value.dict()) return append_object(*dict, style, out, level);
  const List* list = value.list();
  if (list == nullptr || (list->kind != List::Kind::list && list->kind != List::Kind::tuple))
    throw Fault(fmt::format("tojson: a {} is not JSON", type_name(value)));
  append_between("[]", list->items.size(), style, out, level,
                 [&](std::size_t i) { append_json(list->items[i], style, out, level + 1); });
}

}  // namespace zeepo::jinja
