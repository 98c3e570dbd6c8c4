#include "zeepo/train/option_values.h"

#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "zeepo/base/size.h"
#include "zeepo/device/devices.h"

namespace zeepo {
namespace {

constexpr double kRounding = 1e-9;  // 0.7 and 0.3 may be a little more than 1

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = text.find(',', begin);
    parts.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return parts;
    begin = comma + 1;
  }
}

// Nothing where it is not a number all through.
template <class T>
std::optional<std::pair<T, std::errc>> read_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  if (fault == std::errc::invalid_argument || stop != end) return std::nullopt;
  return std::pair{value, fault};
}

// from_chars does not tell too small from too large.
bool is_tiny(std::string_view text) {
  const std::size_t exponent = text.find_first_of("eE");
  return exponent == std::string_view::npos ? text.find_first_of("123456789") > text.find('.')
                                            : exponent + 1 < text.size() && text[exponent + 1] == '-';
}

template <class T>
T parse_floating(const std::string& option, const std::string& text) {
  const auto read = read_number<T>(text);
  if (!read) throw UsageError("{} {}: must be a number", option, text);
  if (read->second == std::errc{}) return read->first;
  if (is_tiny(text)) return 0;
  throw UsageError("{} {}: must be a number up to {}", option, text, std::numeric_limits<T>::max());
}

std::optional<double> parse_share(std::string_view text) {
  const auto read = read_number<double>(text);
  if (!read || read->second != std::errc{} || !(read->first >= 0 && read->first <= 1)) return std::nullopt;
  return read->first;
}

// "a=SIZE,b=SIZE", with `suffix` after each size, into the values of the names; each name once.
void read_sizes(const std::string& option, const std::string& text, const std::string& suffix,
                const std::string& example, std::map<std::string, std::int64_t>& values) {
  for (const auto& part : split_at_commas(text)) {
    const std::size_t equals = part.find('=');
    const auto found = values.find(part.substr(0, equals));
    if (equals == std::string::npos || found == values.end() || !part.ends_with(suffix))
      throw UsageError("{} {}: \"{}\": write it like {}", option, text, part, example);
    if (found->second != 0) throw UsageError("{} {}: {} is given twice", option, text, found->first);
    found->second = parse_size_option(option, part.substr(equals + 1, part.size() - equals - 1 - suffix.size()));
    if (found->second <= 0) throw UsageError("{} {}: {} must be more than 0", option, text, found->first);
  }
}

std::string text_of_sizes(const std::vector<std::pair<const char*, std::int64_t>>& sizes, const char* suffix) {
  std::vector<std::string> parts;
  for (const auto& [name, bytes] : sizes)
    if (bytes > 0) parts.push_back(fmt::format("{}={}{}", name, text_of_size(bytes), suffix));
  return fmt::format("{}", fmt::join(parts, ","));
}

}  // namespace

double parse_number(const std::string& option, const std::string& text) { return parse_floating<double>(option, text); }
float parse_float(const std::string& option, const std::string& text) { return parse_floating<float>(option, text); }

DType parse_dtype_option(const std::string& option, const std::string& text) {
  try {
    return parse_dtype(text);
  } catch (const Error& error) {
    throw UsageError("{}: {}", option, error.what());
  }
}

std::int64_t parse_size_option(const std::string& option, const std::string& text) {
  try {
    return parse_size(text);
  } catch (const Error& error) {
    throw UsageError("{}: {}", option, error.what());
  }
}

std::string text_of_size(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) bytes /= 1024, ++unit;
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

Budgets parse_budgets(const std::string& option, const std::string& text) {
  std::map<std::string, std::int64_t> sizes{{"device", 0}, {"host", 0}, {"nvme", 0}};
  read_sizes(option, text, "", "device=4GiB,host=16GiB,nvme=100GiB", sizes);
  return {sizes["device"], sizes["host"], sizes["nvme"]};
}

std::string text_of(const Budgets& budgets) {
  return text_of_sizes({{"device", budgets.device}, {"host", budgets.host}, {"nvme", budgets.nvme}}, "");
}

SimulatedLinks parse_links(const std::string& option, const std::string& text) {
  std::map<std::string, std::int64_t> rates{{"ranks", 0}, {"host-device", 0}, {"nvme", 0}};
  read_sizes(option, text, "/s", "ranks=1GB/s,host-device=8GB/s,nvme=500MB/s", rates);
  const auto rate = [&](const char* name) { return static_cast<double>(rates[name]); };
  return {rate("ranks"), rate("host-device"), rate("nvme")};
}

std::string text_of(const SimulatedLinks& links) {
  return text_of_sizes({{"ranks", std::llround(links.ranks)},
                        {"host-device", std::llround(links.host_device)},
                        {"nvme", std::llround(links.nvme)}},
                       "/s");
}

const Choices<Place>& place_choices() {
  static const Choices<Place> choices{{"none", Place::device}, {"host", Place::host}, {"nvme", Place::nvme}};
  return choices;
}

Shares parse_shares(const std::string& option, const std::string& text) {
  if (text.find('=') == std::string::npos) return Shares::all_in(parse_choice(option, text, place_choices()));
  std::map<std::string, std::optional<double>> shares{{"host", {}}, {"nvme", {}}};
  for (const auto& part : split_at_commas(text)) {
    const std::size_t equals = part.find('=');
    const auto found = shares.find(part.substr(0, equals));
    if (equals == std::string::npos || found == shares.end())
      throw UsageError("{} {}: \"{}\": write it like host=0.5,nvme=0.3", option, text, part);
    if (found->second) throw UsageError("{} {}: {} is given twice", option, text, found->first);
    found->second = parse_share(std::string_view(part).substr(equals + 1));
    if (!found->second)
      throw UsageError("{} {}: {} {}: must be a share from 0 to 1", option, text, found->first,
                       part.substr(equals + 1));
  }
  const Shares given{shares["host"].value_or(0), shares["nvme"].value_or(0)};
  if (given.host + given.nvme > 1 + kRounding)
    throw UsageError("{} {}: the shares are {} together, must be at most 1", option, text, given.host + given.nvme);
  return given;
}

std::optional<double> parse_host_share(const std::string& option, const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "host") return 1.0;
  if (text == "device") return 0.0;
  if (const auto share = parse_share(text)) return share;
  throw UsageError("{} {}: must be auto, host, device, or the share from 0 to 1 that the host steps", option, text);
}

std::string text_of_host_share(std::optional<double> share) {
  if (!share) return "auto";
  return *share == 1 ? "host" : *share == 0 ? "device" : fmt::format("{}", *share);
}

std::filesystem::path parse_path(const std::string& option, const std::string& text) {
  if (text.empty()) throw UsageError("{} \"\": must be a path; leave it out if there is none", option);
  return text;
}

std::vector<std::filesystem::path> parse_paths(const std::string& option, const std::string& text) {
  std::vector<std::filesystem::path> paths;
  for (const auto& part : split_at_commas(text)) {
    if (part.empty()) throw UsageError("{} \"{}\": must be directories, as DIR or DIR,DIR", option, text);
    paths.emplace_back(part);
  }
  return paths;
}

std::string text_of(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> texts;
  for (const auto& path : paths) texts.push_back(path.string());
  return fmt::format("{}", fmt::join(texts, ","));
}

const Choices<Backend>& device_choices() {
  static const Choices<Backend> choices{{"cpu", Backend::cpu}, {"cuda", Backend::cuda}};
  return choices;
}

Backend default_backend() { return cuda_devices() > 0 ? Backend::cuda : Backend::cpu; }

DType default_dtype(Backend backend) { return backend == Backend::cuda ? DType::bf16 : DType::f32; }

void check_device(const std::string& option, Backend backend) {
  if (backend != Backend::cuda || cuda_devices() > 0) return;
  throw UsageError(
      "{} cuda: {}; use --device cpu", option,
      kHasCuda ? "no GPU that CUDA can use was found (see nvidia-smi)" : "this build was made without CUDA");
}

}  // namespace zeepo
