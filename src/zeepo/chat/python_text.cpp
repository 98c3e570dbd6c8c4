#include "zeepo/chat/python_text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cmath>

#include "zeepo/data/utf8.h"

namespace zeepo::jinja {
namespace {

std::string map_characters(std::string_view text, char32_t (*map)(char32_t)) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    append_utf8(map(c.value), out);
    at += c.bytes;
  }
  return out;
}

char32_t upper(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

char32_t lower(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

void append_upper(char32_t c, std::string& out) {
  if (c == U'ß') {
    out += "SS";
  } else {
    append_utf8(upper(c), out);
  }
}

bool is_letter_with_case(char32_t c) { return upper(c) != c || lower(c) != c; }

// As str.isprintable: neither a separator other than the space, nor a control character, nor unassigned.
bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

void append_quoted(std::string_view text, TextBuilder& out) {
  const bool has_single = text.find('\'') != std::string_view::npos,
             has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string quoted(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const auto code = static_cast<std::uint32_t>(c.value);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      quoted += '\\';
      quoted += static_cast<char>(c.value);
    } else if (c.value == '\n') {
      quoted += "\\n";
    } else if (c.value == '\r') {
      quoted += "\\r";
    } else if (c.value == '\t') {
      quoted += "\\t";
    } else if (is_printable(c.value)) {
      quoted += text.substr(at, c.bytes);
    } else {
      quoted += code < 0x100     ? fmt::format("\\x{:02x}", code)
                : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                 : fmt::format("\\U{:08x}", code);
    }
    at += c.bytes;
  }
  quoted += quote;
  out.append(quoted);
}

void append_items(const List& list, TextBuilder& out) {
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(list.items[i], out);
  }
}

void append_list(const List& list, TextBuilder& out) {
  switch (list.kind) {
    case List::Kind::list:
      out.append('[');
      append_items(list, out);
      return out.append(']');
    case List::Kind::tuple:
      out.append('(');
      append_items(list, out);
      return out.append(list.items.size() == 1 ? ",)" : ")");
    case List::Kind::keys:
    case List::Kind::values:
    case List::Kind::items:
      out.append(list.kind == List::Kind::keys     ? "dict_keys(["
                 : list.kind == List::Kind::values ? "dict_values(["
                                                   : "dict_items([");
      append_items(list, out);
      return out.append("])");
    default: throw Fault("a generator or a range as text is not supported; the filter \"list\" makes a list of it");
  }
}

void append_dict(const Dict& dict, TextBuilder& out) {
  out.append('{');
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.append(", ");
    first = false;
    append_repr(key, out);
    out.append(": ");
    append_repr(value, out);
  }
  out.append('}');
}

}  // namespace

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip(std::string_view text, Side side, std::optional<std::string_view> characters) {
  const auto goes = [&](char32_t c) {
    if (!characters) return is_space(c);
    for (std::size_t at = 0; at < characters->size();) {
      const CodePoint one = code_point_at(*characters, at);
      if (one.value == c) return true;
      at += one.bytes;
    }
    return false;
  };
  while (side != Side::right && !text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!goes(c.value)) break;
    text.remove_prefix(c.bytes);
  }
  while (side != Side::left && !text.empty()) {
    const CodePoint c = code_point_before(text, text.size());
    if (!goes(c.value)) break;
    text.remove_suffix(c.bytes);
  }
  return text;
}

std::int64_t length_in_characters(std::string_view text) {
  std::int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::vector<std::size_t> character_starts(std::string_view text, Budget& budget) {
  budget.bytes(text.size() * sizeof(std::size_t));
  std::vector<std::size_t> starts;
  for (std::size_t at = 0; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) starts.push_back(at);
  starts.push_back(text.size());
  return starts;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    append_upper(c.value, out);
    at += c.bytes;
  }
  return out;
}

std::string to_lower(std::string_view text) { return map_characters(text, lower); }

std::string capitalize(std::string_view text) {
  if (text.empty()) return "";
  const std::size_t first = code_point_at(text, 0).bytes;
  return to_upper(text.substr(0, first)) + to_lower(text.substr(first));
}

std::string title_of_letters(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (inside) {
      append_utf8(lower(c.value), out);
    } else {
      append_upper(c.value, out);
    }
    inside = is_letter_with_case(c.value);
    at += c.bytes;
  }
  return out;
}

std::string title_of_words(std::string_view text) {
  std::string out;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const bool between =
        is_space(c.value) ||
        (c.value < 0x80 && std::string_view("-({[<").find(static_cast<char>(c.value)) != std::string_view::npos);
    if (inside) {
      append_utf8(lower(c.value), out);
    } else {
      append_upper(c.value, out);
    }
    inside = !between;
    at += c.bytes;
  }
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  return out;
}

std::string spell_float(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void append_str(const Value& value, TextBuilder& out) {
  out.budget().step();
  if (const std::string* text = value.text()) return out.append(*text);
  if (!value.is_undefined()) append_repr(value, out);
}

void append_repr(const Value& value, TextBuilder& out) {
  out.budget().step();
  if (value.is_undefined()) return out.append("Undefined");
  if (value.is_none()) return out.append("None");
  if (const bool* truth = value.get<bool>()) return out.append(*truth ? "True" : "False");
  if (const auto* whole = value.get<std::int64_t>()) return out.append(fmt::format("{}", *whole));
  if (const auto* number = value.get<double>()) return out.append(spell_float(*number));
  if (const std::string* text = value.text()) return append_quoted(*text, out);
  if (const List* list = value.list()) return append_list(*list, out);
  if (const Dict* dict = value.dict()) return append_dict(*dict, out);
  throw Fault(fmt::format("a {} as text is not supported", type_name(value)));
}

std::string to_str(const Value& value, Budget& budget) {
  TextBuilder out(budget);
  append_str(value, out);
  return out.take();
}

}  // namespace zeepo::jinja
