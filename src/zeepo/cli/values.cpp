#include "zeepo/cli/values.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/device/devices.h"

namespace zeepo::cli {

DType dtype_option(const std::string& option, const std::string& text) {
  try {
    return parse_dtype(text);
  } catch (const Error& error) {
    throw UsageError("{}: {}", option, error.what());
  }
}

std::int64_t size_option(const std::string& option, const std::string& text) {
  try {
    return parse_size(text);
  } catch (const Error& error) {
    throw UsageError("{}: {}", option, error.what());
  }
}

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

namespace {

// "a=SIZE,b=SIZE", with `suffix` after each size, into the values of the names; each name once.
void read_sizes(const std::string& option, const std::string& text, const std::string& suffix,
                const std::string& example, std::map<std::string, std::int64_t>& values) {
  for (const auto& part : split_at_commas(text)) {
    const std::size_t equals = part.find('=');
    const auto found = values.find(part.substr(0, equals));
    if (equals == std::string::npos || found == values.end() || !part.ends_with(suffix))
      throw UsageError("{} {}: \"{}\": write it like {}", option, text, part, example);
    if (found->second != 0) throw UsageError("{} {}: {} is given twice", option, text, found->first);
    found->second = size_option(option, part.substr(equals + 1, part.size() - equals - 1 - suffix.size()));
    if (found->second <= 0) throw UsageError("{} {}: {} must be more than 0", option, text, found->first);
  }
}

}  // namespace

Budgets memory_option(const std::string& text) {
  if (text.empty()) return {};
  std::map<std::string, std::int64_t> sizes{{"device", 0}, {"host", 0}, {"nvme", 0}};
  read_sizes("--memory", text, "", "device=4GiB,host=16GiB,nvme=100GiB", sizes);
  return {sizes["device"], sizes["host"], sizes["nvme"]};
}

SimulatedLinks links_option(const std::string& text) {
  if (text.empty()) return {};
  std::map<std::string, std::int64_t> rates{{"ranks", 0}, {"host-device", 0}, {"nvme", 0}};
  read_sizes("--simulate-link", text, "/s", "ranks=1GB/s,host-device=8GB/s,nvme=500MB/s", rates);
  const auto rate = [&](const char* name) { return static_cast<double>(rates[name]); };
  return {rate("ranks"), rate("host-device"), rate("nvme")};
}

Place place_option(const std::string& option, const std::string& text) {
  return choice_option<Place>(option, text, {{"none", Place::device}, {"host", Place::host}, {"nvme", Place::nvme}});
}

Backend device_option(const std::string& text) {
  if (text.empty()) return cuda_devices() > 0 ? Backend::cuda : Backend::cpu;
  const auto backend = choice_option<Backend>("--device", text, {{"cpu", Backend::cpu}, {"cuda", Backend::cuda}});
  if (backend == Backend::cuda && cuda_devices() == 0)
    throw UsageError("--device cuda: {}; use --device cpu", kHasCuda
                                                                ? "no GPU that CUDA can use was found (see nvidia-smi)"
                                                                : "this build was made without CUDA");
  return backend;
}

DType dtype_or_default(const std::string& text, Backend backend) {
  if (!text.empty()) return dtype_option("--dtype", text);
  return backend == Backend::cuda ? DType::bf16 : DType::f32;
}

std::optional<double> host_share_option(const std::string& option, const std::string& text) {
  if (text == "auto") return std::nullopt;
  if (text == "host") return 1.0;
  if (text == "device") return 0.0;
  double share = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), share);
  if (fault != std::errc() || end != text.data() + text.size() || !(share >= 0 && share <= 1))
    throw UsageError("{} {}: must be auto, host, device, or the share from 0 to 1 that the host steps", option, text);
  return share;
}

Shares shares_option(const std::string& option, const std::string& text) {
  if (text.find('=') == std::string::npos) return Shares::all_in(place_option(option, text));
  constexpr double kRounding = 1e-9;  // 0.7 and 0.3 may be a little more than 1
  std::map<std::string, std::optional<double>> shares{{"host", {}}, {"nvme", {}}};
  for (const auto& part : split_at_commas(text)) {
    const std::size_t equals = part.find('=');
    const auto found = shares.find(part.substr(0, equals));
    if (equals == std::string::npos || found == shares.end())
      throw UsageError("{} {}: \"{}\": write it like host=0.5,nvme=0.3", option, text, part);
    if (found->second) throw UsageError("{} {}: {} is given twice", option, text, found->first);
    const std::string_view number = std::string_view(part).substr(equals + 1);
    double share = 0;
    const auto [end, fault] = std::from_chars(number.data(), number.data() + number.size(), share);
    if (fault != std::errc() || end != number.data() + number.size() || !(share >= 0 && share <= 1))
      throw UsageError("{} {}: {} {}: must be a share from 0 to 1", option, text, found->first, number);
    found->second = share;
  }
  const Shares given{shares["host"].value_or(0), shares["nvme"].value_or(0)};
  if (given.host + given.nvme > 1 + kRounding)
    throw UsageError("{} {}: the shares are {} together, must be at most 1", option, text, given.host + given.nvme);
  return given;
}

}  // namespace zeepo::cli
