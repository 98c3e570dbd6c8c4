// The methods of str.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "zeepo/chat/methods.h"
#include "zeepo/chat/operators.h"
#include "zeepo/chat/python_text.h"
#include "zeepo/data/utf8.h"

namespace zeepo::jinja {
namespace {

using Method = Value (*)(const Text& text, Arguments& arguments, Budget& budget);

Value like(const Text& text, std::string changed) {
  return Text{std::make_shared<const std::string>(std::move(changed)), text.safe};
}

template <Side side>
Value strip_method(const Text& text, Arguments& arguments, Budget& budget) {
  const Value* characters = arguments.take(0, "chars");
  arguments.done("strip");
  budget.bytes(text.text->size());
  if (characters == nullptr || characters->is_none()) return like(text, std::string(strip(*text.text, side)));
  const std::string& set = text_of(characters, "strip", "chars");
  budget.step(set.size() * text.text->size() / 16);
  return like(text, std::string(strip(*text.text, side, set)));
}

template <std::string (*change)(std::string_view)>
Value change_method(const Text& text, Arguments& arguments, Budget& budget) {
  arguments.done("this method of str");
  budget.bytes(2 * text.text->size());
  return like(text, change(*text.text));
}

bool has_end(const std::string& text, const std::string& part, bool at_start) {
  return at_start ? text.starts_with(part) : text.ends_with(part);
}

template <bool at_start>
Value ends_method(const Text& text, Arguments& arguments, Budget& budget) {
  constexpr std::string_view kName = at_start ? "startswith" : "endswith";
  const Value* part = arguments.take(0, "prefix");
  arguments.done(kName);
  if (part && part->list() && part->list()->kind == List::Kind::tuple) {
    budget.step(part->list()->items.size());
    return std::ranges::any_of(part->list()->items, [&](const Value& one) {
      return has_end(*text.text, text_of(&one, kName, "prefix"), at_start);
    });
  }
  return has_end(*text.text, text_of(part, kName, "prefix"), at_start);
}

template <bool at_start>
Value remove_method(const Text& text, Arguments& arguments, Budget& budget) {
  const std::string& part = text_of(arguments.take(0, "prefix"), "removeprefix", "prefix");
  arguments.done("removeprefix");
  budget.bytes(text.text->size());
  if (!has_end(*text.text, part, at_start)) return like(text, *text.text);
  return like(text, at_start ? text.text->substr(part.size()) : text.text->substr(0, text.text->size() - part.size()));
}

std::int64_t most_of(const Value* value) {
  if (value == nullptr) return -1;
  const auto most = value->integer();
  if (!most) throw Fault(fmt::format("a {} where a number is wanted", type_name(*value)));
  return *most;
}

std::vector<std::string> split_at_space(std::string_view text, std::int64_t most, bool from_right) {
  struct Word {
    std::size_t begin, end;
  };
  std::vector<Word> words;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_space(c.value)) {
      if (!inside) words.push_back({at, at});
      words.back().end = at + c.bytes;
    }
    inside = !is_space(c.value);
    at += c.bytes;
  }
  const std::size_t splits = most < 0 ? words.size() : std::min(static_cast<std::size_t>(most), words.size());
  const bool rest = splits < words.size();
  std::vector<std::string> parts;
  if (rest && from_right) parts.emplace_back(text.substr(0, words[words.size() - splits - 1].end));
  for (std::size_t i = from_right ? words.size() - splits : 0; i < (from_right ? words.size() : splits); ++i)
    parts.emplace_back(text.substr(words[i].begin, words[i].end - words[i].begin));
  if (rest && !from_right) parts.emplace_back(text.substr(words[splits].begin));
  return parts;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                                  bool from_right) {
  std::vector<std::string> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    parts.emplace_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  parts.emplace_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

Value list_of(const Text& text, const std::vector<std::string>& parts, Budget& budget) {
  budget.bytes(text.text->size() + parts.size() * 3 * sizeof(Value));
  std::vector<Value> items;
  for (const std::string& part : parts) items.push_back(like(text, part));
  return make_list(std::move(items));
}

template <bool from_right>
Value split_method(const Text& text, Arguments& arguments, Budget& budget) {
  const Value *separator = arguments.take(0, "sep"), *most = arguments.take(1, "maxsplit");
  arguments.done("split");
  budget.bytes(4 * text.text->size());
  if (separator == nullptr || separator->is_none())
    return list_of(text, split_at_space(*text.text, most_of(most), from_right), budget);
  const std::string& between = text_of(separator, "split", "sep");
  if (between.empty()) throw Fault("split(): an empty separator");
  return list_of(text, split_at(*text.text, between, most_of(most), from_right), budget);
}

Value lines_method(const Text& text, Arguments& arguments, Budget& budget) {
  const Value* keep = arguments.take(0, "keepends");
  arguments.done("splitlines");
  budget.bytes(4 * text.text->size());
  std::vector<std::string> lines;
  const std::string& all = *text.text;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find_first_of("\n\r\v\f\x1c\x1d\x1e", begin), all.size());
    std::size_t next = std::min(end + 1, all.size());
    if (all.substr(end, 2) == "\r\n") next = end + 2;
    lines.push_back(all.substr(begin, (keep && is_true(*keep) ? next : end) - begin));
    begin = next;
  }
  return list_of(text, lines, budget);
}

Value replace_method(const Text& text, Arguments& arguments, Budget& budget) {
  const std::string &from = text_of(arguments.take(0, "old"), "replace", "old"),
                    &to = text_of(arguments.take(1, "new"), "replace", "new");
  const std::int64_t most = most_of(arguments.take(2, "count"));
  arguments.done("replace");
  if (text.safe) throw Fault("replace() of a text from the filter \"safe\" is not supported");
  return replaced(*text.text, from, to, most, budget);
}

template <bool last>
Value find_method(const Text& text, Arguments& arguments, Budget& budget) {
  const std::string& part = text_of(arguments.take(0, "sub"), "find", "sub");
  arguments.done("find");
  budget.step(text.text->size() / 16);
  const std::size_t at = last ? text.text->rfind(part) : text.text->find(part);
  if (at == std::string::npos) return -1;
  return length_in_characters(std::string_view(*text.text).substr(0, at));
}

Value count_method(const Text& text, Arguments& arguments, Budget& budget) {
  const std::string& part = text_of(arguments.take(0, "sub"), "count", "sub");
  arguments.done("count");
  budget.step(text.text->size() / 16);
  if (part.empty()) return length_in_characters(*text.text) + 1;
  std::int64_t count = 0;
  for (std::size_t at = 0; (at = text.text->find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

Value join_method(const Text& text, Arguments& arguments, Budget& budget) {
  const Value* items = arguments.take(0, "iterable");
  arguments.done("join");
  if (items == nullptr) throw Fault("join() needs a list");
  if (text.safe) throw Fault("join() of a text from the filter \"safe\" is not supported");
  TextBuilder out(budget);
  bool first = true;
  for (const Value& item : items_of(*items, budget)) {
    if (!first) out.append(*text.text);
    first = false;
    out.append(text_of(&item, "join", "item"));
  }
  return out.take();
}

// "{}", "{0}" and "{name}" without further specification.
Value format_method(const Text& text, Arguments& arguments, Budget& budget) {
  if (text.safe) throw Fault("format() of a text from the filter \"safe\" is not supported");
  const std::string& all = *text.text;
  TextBuilder out(budget);
  std::size_t automatic = 0;
  for (std::size_t at = 0; at < all.size(); ++at) {
    const char c = all[at];
    if (c != '{' && c != '}') {
      out.append(c);
      continue;
    }
    if (at + 1 < all.size() && all[at + 1] == c) {
      out.append(c);
      ++at;
      continue;
    }
    const std::size_t end = all.find('}', at);
    if (c == '}' || end == std::string::npos) throw Fault("format(): a single '{' or '}' in the text");
    const std::string field = all.substr(at + 1, end - at - 1);
    const bool number = std::ranges::all_of(field, [](char d) { return d >= '0' && d <= '9'; });
    const bool plain =
        std::ranges::all_of(field, [](char d) { return std::isalnum(static_cast<unsigned char>(d)) != 0 || d == '_'; });
    if (!plain || field.size() > 9 * (number ? 1u : 100u))
      throw Fault(fmt::format("format(): the field {{{}}} is not supported", field));
    const std::size_t place = number ? (field.empty() ? automatic++ : std::stoul(field)) : arguments.positional.size();
    const Value* value = arguments.take(place, number ? "" : field);
    if (value == nullptr) throw Fault(fmt::format("format(): no argument for {{{}}}", field));
    append_str(*value, out);
    at = end;
  }
  return out.take();
}

template <class Fits>
bool all_characters(std::string_view text, Fits&& fits) {
  return !text.empty() && std::ranges::all_of(text, fits);
}

template <bool (*fits)(char)>
Value ascii_test_method(const Text& text, Arguments& arguments, Budget&) {
  arguments.done("this method of str");
  if (std::ranges::any_of(*text.text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    throw Fault("this method of str is not supported for characters beyond ASCII");
  return all_characters(*text.text, fits);
}

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_either(char c) { return is_ascii_digit(c) || is_ascii_letter(c); }
bool is_ascii_space(char c) { return is_space(static_cast<unsigned char>(c)); }

struct Entry {
  std::string_view name;
  Method method;  // null: not supported
};

constexpr std::array kMethods = std::to_array<Entry>({{"strip", strip_method<Side::both>},
                                                      {"lstrip", strip_method<Side::left>},
                                                      {"rstrip", strip_method<Side::right>},
                                                      {"upper", change_method<to_upper>},
                                                      {"lower", change_method<to_lower>},
                                                      {"title", change_method<title_of_letters>},
                                                      {"capitalize", change_method<capitalize>},
                                                      {"startswith", ends_method<true>},
                                                      {"endswith", ends_method<false>},
                                                      {"removeprefix", remove_method<true>},
                                                      {"removesuffix", remove_method<false>},
                                                      {"split", split_method<false>},
                                                      {"rsplit", split_method<true>},
                                                      {"splitlines", lines_method},
                                                      {"replace", replace_method},
                                                      {"find", find_method<false>},
                                                      {"rfind", find_method<true>},
                                                      {"count", count_method},
                                                      {"join", join_method},
                                                      {"format", format_method},
                                                      {"isdigit", ascii_test_method<is_ascii_digit>},
                                                      {"isalpha", ascii_test_method<is_ascii_letter>},
                                                      {"isalnum", ascii_test_method<is_ascii_either>},
                                                      {"isspace", ascii_test_method<is_ascii_space>},
                                                      {"casefold", nullptr},
                                                      {"center", nullptr},
                                                      {"encode", nullptr},
                                                      {"expandtabs", nullptr},
                                                      {"format_map", nullptr},
                                                      {"index", nullptr},
                                                      {"isascii", nullptr},
                                                      {"isdecimal", nullptr},
                                                      {"isidentifier", nullptr},
                                                      {"islower", nullptr},
                                                      {"isnumeric", nullptr},
                                                      {"isprintable", nullptr},
                                                      {"istitle", nullptr},
                                                      {"isupper", nullptr},
                                                      {"ljust", nullptr},
                                                      {"maketrans", nullptr},
                                                      {"partition", nullptr},
                                                      {"rindex", nullptr},
                                                      {"rjust", nullptr},
                                                      {"rpartition", nullptr},
                                                      {"swapcase", nullptr},
                                                      {"translate", nullptr},
                                                      {"zfill", nullptr}});

}  // namespace

const std::string& text_of(const Value* value, std::string_view function, std::string_view name) {
  if (value == nullptr) throw Fault(fmt::format("{}() needs \"{}\"", function, name));
  must_be_defined(*value);
  if (const std::string* text = value->text()) return *text;
  throw Fault(fmt::format("{}(): \"{}\" is a {}, must be a str", function, name, type_name(*value)));
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, std::int64_t most,
                     Budget& budget) {
  TextBuilder out(budget);
  std::int64_t count = 0;
  std::size_t at = 0;
  if (from.empty()) {  // between all characters
    const auto starts = character_starts(text, budget);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      if (most < 0 || count++ < most) out.append(to);
      if (i + 1 < starts.size()) out.append(text.substr(starts[i], starts[i + 1] - starts[i]));
    }
    return out.take();
  }
  for (; most < 0 || count < most; ++count) {
    const std::size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at));
    out.append(to);
    at = found + from.size();
  }
  out.append(text.substr(at));
  return out.take();
}

std::optional<Value> text_method(const Text& text, const std::string& name, Budget& budget) {
  const auto found = std::ranges::find(kMethods, name, &Entry::name);
  if (found == kMethods.end()) return std::nullopt;
  const Method method = found->method;
  return Value(std::make_shared<const Callable>(Callable{name, [text, name, method, &budget](Arguments& arguments) {
                                                           if (method == nullptr)
                                                             throw Fault(fmt::format(
                                                                 "the method {}() of str is not supported", name));
                                                           return method(text, arguments, budget);
                                                         }}));
}

}  // namespace zeepo::jinja
