// What the texts of options mean, and the texts of values: each text_of() is read back to the same value.
//
// `option` is what an error names first: "train: --memory". Everything that reads throws UsageError with the option,
// the text and what it may be.
#pragma once

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"
#include "zeepo/device/stream.h"
#include "zeepo/zero/placement.h"

namespace zeepo {

inline constexpr int kMaxThreads = 1024;

// A whole number that T can hold; the range is what an error tells.
template <class T>
T parse_whole(const std::string& option, const std::string& text, T least, T most) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  if (fault == std::errc{} && stop == end) return value;
  throw UsageError("{} {}: must be a whole number from {} to {}", option, text, least, most);
}

// A number; one that is too small for its type is 0, one that is too large is refused.
double parse_number(const std::string& option, const std::string& text);
float parse_float(const std::string& option, const std::string& text);

// One of the names.
template <class T>
using Choices = std::vector<std::pair<std::string, T>>;
template <class T>
T parse_choice(const std::string& option, const std::string& text, const Choices<T>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names.push_back(name);
  }
  throw UsageError("{} {}: must be one of {}", option, text, fmt::join(names, ", "));
}
template <class T>
std::string text_of(const T& value, const Choices<T>& choices) {
  for (const auto& [name, known] : choices)
    if (known == value) return name;
  return "";
}
// Of a list of named types, as kWeightCodecs and kWireFormats; and their names for the help: "same, int8 or int4".
template <class List>
auto choices_of(const List& list) {
  Choices<decltype(std::begin(list)->type)> choices;
  for (const auto& entry : list) choices.emplace_back(entry.name, entry.type);
  return choices;
}
template <class T>
std::string names_of(const Choices<T>& choices) {
  std::string text;
  for (std::size_t i = 0; i < choices.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 < choices.size() ? ", " : " or ", choices[i].first);
  return text;
}

DType parse_dtype_option(const std::string& option, const std::string& text);

// Bytes: "512MiB". The text is in the largest unit of which there is a whole number.
std::int64_t parse_size_option(const std::string& option, const std::string& text);
std::string text_of_size(std::int64_t bytes);

// "device=4GiB,host=8GiB,nvme=100GB": budgets in bytes; 0 where none is given.
struct Budgets {
  std::int64_t device = 0, host = 0, nvme = 0;
};
Budgets parse_budgets(const std::string& option, const std::string& text);
std::string text_of(const Budgets& budgets);

// "ranks=1GB/s,host-device=8GB/s,nvme=500MB/s": bytes a second of each link that is to be slow; 0 for the others.
struct SimulatedLinks {
  double ranks = 0, host_device = 0, nvme = 0;
};
SimulatedLinks parse_links(const std::string& option, const std::string& text);
std::string text_of(const SimulatedLinks& links);

// "none", "host" or "nvme"; shares also as "host=0.5,nvme=0.3", the rest staying on the device.
const Choices<Place>& place_choices();
Shares parse_shares(const std::string& option, const std::string& text);

// "auto" (nothing), "host" (1), "device" (0), or a share from 0 to 1.
std::optional<double> parse_host_share(const std::string& option, const std::string& text);
std::string text_of_host_share(std::optional<double> share);

// "DIR" and "DIR,DIR,...".
std::filesystem::path parse_path(const std::string& option, const std::string& text);
std::vector<std::filesystem::path> parse_paths(const std::string& option, const std::string& text);
std::string text_of(const std::vector<std::filesystem::path>& paths);

// "cpu" or "cuda".
const Choices<Backend>& device_choices();
// Where no option says: cuda where there is a GPU; bf16 there, else fp32.
Backend default_backend();
DType default_dtype(Backend backend);
// Throws UsageError when this machine or build has no such device.
void check_device(const std::string& option, Backend backend);

}  // namespace zeepo
