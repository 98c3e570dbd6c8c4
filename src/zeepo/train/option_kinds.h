// Kinds of options: each makes parse, text, check and from_json of an entry of the option table from a field and its
// range.
//
// A field is a function that gives a reference to it, of const and other TrainOptions alike:
// `[](auto& o) -> auto& { return o.schedule.lr; }`.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "zeepo/train/deepspeed_block.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/option_values.h"

namespace zeepo::option_kinds {

// As errors name it.
inline std::string label_of(const TrainOption& option) { return "train: " + option.name; }

template <class Field>
using ValueOf = std::remove_cvref_t<std::invoke_result_t<Field, TrainOptions&>>;

template <class T>
struct WholeRange {
  T least = 0, most = std::numeric_limits<T>::max();
  std::optional<T> absent = {};  // the value that stands for none; it is in range
};

template <class Field>
TrainOption whole(TrainOption option, Field field, WholeRange<ValueOf<Field>> range = {}) {
  using T = ValueOf<Field>;
  const std::string label = label_of(option);
  const auto check_range = [=](T value) {
    if (value < range.least) throw UsageError("{} {}: must be at least {}", label, value, range.least);
    if (value > range.most) throw UsageError("{} {}: must be at most {}", label, value, range.most);
  };
  option.type = std::is_unsigned_v<T> ? "UINT" : "INT";
  option.parse = [=](TrainOptions& options, const std::string& text) {
    const T value = parse_whole<T>(label, text, range.least, range.most);
    check_range(value);  // here already, so that nobody writes the value that stands for none
    field(options) = value;
  };
  option.text = [=](const TrainOptions& options) {
    return field(options) == range.absent ? "" : fmt::format("{}", field(options));
  };
  option.check = [=](const TrainOptions& options) {
    if (field(options) != range.absent) check_range(field(options));
  };
  option.from_json = [=](DeepSpeedBlock& block, const char* key) -> std::optional<std::string> {
    constexpr std::uint64_t kMost = std::uint64_t{1} << 48;  // which a JSON number holds exactly
    const auto most = std::min<std::uint64_t>(kMost, static_cast<std::uint64_t>(range.most));
    const auto value = block.whole(key, static_cast<std::int64_t>(range.least), static_cast<std::int64_t>(most));
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  };
  return option;
}

// From `least` on; finite, and below a limit where there is one.
struct NumberRange {
  double least = 0;
  std::optional<double> below = {};
};

// Of a double, a float, or an optional of these.
template <class Field>
TrainOption number(TrainOption option, Field field, NumberRange range = {}) {
  using Value = ValueOf<Field>;
  constexpr bool kIsFloat = std::is_same_v<Value, float> || std::is_same_v<Value, std::optional<float>>;
  const std::string label = label_of(option);
  const auto value_of = [field](const TrainOptions& options) {
    if constexpr (std::is_arithmetic_v<Value>)
      return std::optional(field(options));
    else
      return field(options);
  };
  option.type = "FLOAT";
  option.parse = [=](TrainOptions& options, const std::string& text) {
    if constexpr (kIsFloat)
      field(options) = parse_float(label, text);
    else
      field(options) = parse_number(label, text);
  };
  option.text = [=](const TrainOptions& options) {
    const auto value = value_of(options);
    return value ? fmt::format("{}", *value) : "";
  };
  option.check = [=](const TrainOptions& options) {
    const auto value = value_of(options);
    if (!value) return;
    if (range.below && !(*value >= range.least && *value < *range.below))
      throw UsageError("{} {}: must be at least {} and below {}", label, *value, range.least, *range.below);
    if (!(*value >= range.least) || std::isinf(*value))
      throw UsageError("{} {}: must be a number, {} or more", label, *value, range.least);
  };
  option.from_json = [=](DeepSpeedBlock& block, const char* key) -> std::optional<std::string> {
    constexpr double kMost = 1e30;  // which fp32 holds with room for products
    const auto value =
        range.below ? block.number_below(key, range.least, *range.below) : block.number(key, range.least, kMost);
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  };
  return option;
}

// DeepSpeed may have names of its own; without them the JSON has the option's.
template <class Field>
TrainOption choice(TrainOption option, Field field, Choices<ValueOf<Field>> choices,
                   Choices<ValueOf<Field>> deepspeed_names = {}) {
  const std::string label = label_of(option);
  option.type = "TEXT";
  option.parse = [=](TrainOptions& options, const std::string& text) {
    field(options) = parse_choice(label, text, choices);
  };
  option.text = [=](const TrainOptions& options) { return text_of(field(options), choices); };
  const auto& names = deepspeed_names.empty() ? choices : deepspeed_names;
  option.from_json = [choices, names](DeepSpeedBlock& block, const char* key) -> std::optional<std::string> {
    const auto value = block.choice(key, names);
    return value ? std::optional(text_of(*value, choices)) : std::nullopt;
  };
  return option;
}

// Whatever can be got and set as true or false.
template <class Get, class Set>
TrainOption flag(TrainOption option, Get get, Set set) {
  const std::string label = label_of(option);
  option.is_flag = true;
  option.parse = [=](TrainOptions& options, const std::string& text) {
    set(options, parse_choice<bool>(label, text, {{"true", true}, {"false", false}}));
  };
  option.text = [=](const TrainOptions& options) { return get(options) ? "true" : "false"; };
  return option;
}

template <class Field>
TrainOption flag(TrainOption option, Field field) {
  return flag(
      std::move(option), [=](const TrainOptions& options) -> bool { return field(options); },
      [=](TrainOptions& options, bool value) { field(options) = value; });
}

// A path or a std::string.
template <class Field>
TrainOption path(TrainOption option, Field field) {
  const std::string label = label_of(option);
  option.type = "TEXT";
  option.parse = [=](TrainOptions& options, const std::string& text) {
    field(options) = parse_path(label, text).string();
  };
  option.text = [=](const TrainOptions& options) { return std::filesystem::path(field(options)).string(); };
  return option;
}

// What none of these is. `read` is given what an error names, the text and the options to set.
template <class Read, class Text>
TrainOption other(TrainOption option, Read read, Text text_of_value) {
  const std::string label = label_of(option);
  option.type = "TEXT";
  option.parse = [=](TrainOptions& options, const std::string& text) { read(label, text, options); };
  option.text = text_of_value;
  return option;
}

}  // namespace zeepo::option_kinds
