// Numbers on a command line, read as those of `zeepo train` are.
//
// CLI11's own reading takes -1 and 2^64 for the largest unsigned number, 010 for 8 and nan for a limit of time.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

#include "zeepo/train/option_values.h"

namespace zeepo::cli {

template <class T>
struct WholeNumbers {
  T least = 0, most = std::numeric_limits<T>::max();
};

// Sets `field`, a T or an optional of one, and lives as long as the command.
template <class T, class Field>
CLI::Option* add_whole(CLI::App& command, const std::string& name, Field& field, const WholeNumbers<T>& range,
                       const std::string& help) {
  const auto read = [label = command.get_name() + ": " + name, &field, range](const std::string& text) {
    const T value = parse_whole<T>(label, text, range.least, range.most);
    if (value < range.least || value > range.most)
      throw UsageError("{} {}: must be a whole number from {} to {}", label, text, range.least, range.most);
    field = value;
  };
  return command.add_option_function<std::string>(name, read, help)->type_name("INT");
}

// Finite, from 0 on.
template <class T>
CLI::Option* add_number(CLI::App& command, const std::string& name, T& field, const std::string& help) {
  const auto read = [label = command.get_name() + ": " + name, &field](const std::string& text) {
    const double value = parse_number(label, text);
    field = static_cast<T>(value);
    if (!(value >= 0) || !std::isfinite(field)) throw UsageError("{} {}: must be a number, 0 or more", label, text);
  };
  return command.add_option_function<std::string>(name, read, help)->type_name("FLOAT");
}

}  // namespace zeepo::cli
