#include "zeepo/plan/hardware.h"

#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/base/size.h"
#include "zeepo/model/strict_json.h"
#include "zeepo/plan/known_hardware.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

// An object whose keys are all asked for.
class Reader {
 public:
  Reader(const nlohmann::json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw UsageError("{}: must be an object", where_);
  }

  bool has(const char* key) const { return json_.contains(key); }
  const nlohmann::json& at(const char* key) {
    read_.insert(key);
    const auto found = json_.find(key);
    if (found == json_.end()) throw UsageError("{}: {} is missing", where_, key);
    return *found;
  }
  // Above 0.
  double number(const char* key, double unit) {
    const nlohmann::json& value = at(key);
    constexpr double kMost = 1e15;  // of any unit
    const double number = value.is_number() ? value.get<double>() : NAN;
    if (!(number > 0 && number <= kMost && number * unit > 0))
      throw UsageError("{}: {} {}: must be a number above 0, and {:g} at most", where_, key, value.dump(), kMost);
    return number * unit;
  }
  int count(const char* key) {
    constexpr double kMost = 1 << 20;
    const double number = this->number(key, 1);
    if (number != std::floor(number) || number > kMost)
      throw UsageError("{}: {} {}: must be a whole number from 1 to {}", where_, key, number, kMost);
    return static_cast<int>(number);
  }
  // Above 0.
  std::int64_t size(const char* key) {
    const nlohmann::json& value = at(key);
    if (!value.is_string()) throw UsageError("{}: {} {}: must be a size such as \"80GiB\"", where_, key, value.dump());
    std::int64_t bytes = 0;
    try {
      bytes = parse_size(value.get<std::string>());
    } catch (const Error& error) {
      throw UsageError("{}: {}: {}", where_, key, error.what());
    }
    if (bytes == 0) refuse(key, "must be above 0");
    return bytes;
  }
  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    throw UsageError("{}: {} {}: {}", where_, key, json_.at(key).dump(), why);
  }
  Reader object(const char* key) { return {at(key), where_ + ": " + key}; }
  // Throws UsageError for a key that nobody asked for: most likely misspelt.
  void check_all_read() const {
    for (const auto& [key, value] : json_.items())
      if (!read_.contains(key)) throw UsageError("{}: {}: no such key", where_, key);
  }

 private:
  const nlohmann::json& json_;
  std::string where_;
  std::set<std::string> read_;
};

constexpr std::int64_t kLargestFile = 1 << 20;
constexpr double kGiga = 1e9, kTera = 1e12, kMicro = 1e-6;

void read_gpu(Reader gpu, Hardware& hardware) {
  SimulatedRates& rates = hardware.rates;
  hardware.device_bytes = gpu.size("memory");
  if (gpu_budget(static_cast<std::size_t>(hardware.device_bytes)) == 0)
    gpu.refuse("memory", "must be more than 1 GiB, which kernels and libraries take for themselves");
  Reader tflops = gpu.object("tflops");
  rates.products_fp32 = tflops.number("fp32", kTera);
  rates.products_16bit = tflops.number("16bit", kTera);
  rates.products_fp8 = tflops.has("fp8") ? tflops.number("fp8", kTera) : rates.products_16bit;
  tflops.check_all_read();
  rates.attention = gpu.number("attention_tflops", kTera);
  rates.device_memory = gpu.number("memory_gbps", kGiga);
  rates.kernel_seconds = gpu.number("kernel_us", kMicro);
  gpu.check_all_read();
}

void read_host(Reader host, Hardware& hardware) {
  hardware.host_bytes = host.size("memory");
  hardware.rates.host_steps = host.number("step_gelements", kGiga);
  host.check_all_read();
}

void read_link(Reader link, SimulatedRates& rates) {
  rates.to_device = link.number("to_device_gbps", kGiga);
  rates.to_host = link.number("to_host_gbps", kGiga);
  link.check_all_read();
}

void read_network(Reader network, SimulatedRates& rates) {
  rates.within_node = network.number("within_node_gbps", kGiga);
  rates.between_nodes = network.number("between_nodes_gbps", kGiga);
  rates.collective_seconds = network.number("collective_us", kMicro);
  network.check_all_read();
}

void read_disk(Reader disk, Hardware& hardware) {
  hardware.nvme_bytes = disk.size("size");
  hardware.rates.read = disk.number("read_gbps", kGiga);
  hardware.rates.write = disk.number("write_gbps", kGiga);
  disk.check_all_read();
}

}  // namespace

Hardware parse_hardware(std::string_view text, const std::string& what) {
  nlohmann::json json;
  try {
    json = parse_json_object(text, what);
  } catch (const Error& fault) {
    throw UsageError("{}", fault.what());
  }
  Reader reader(json, what);
  Hardware hardware;
  hardware.rates.beside_host = true;
  const nlohmann::json& name = reader.at("name");
  if (!name.is_string()) throw UsageError("{}: name must be a text", what);
  hardware.name = name.get<std::string>();
  hardware.nodes = reader.count("nodes");
  hardware.gpus_per_node = reader.count("gpus_per_node");
  read_gpu(reader.object("gpu"), hardware);
  read_host(reader.object("host"), hardware);
  read_link(reader.object("link"), hardware.rates);
  read_network(reader.object("network"), hardware.rates);
  if (reader.has("disk")) read_disk(reader.object("disk"), hardware);
  reader.check_all_read();
  return hardware;
}

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const KnownHardware& known : known_hardware()) names.emplace_back(known.name);
  return names;
}

Hardware find_hardware(const std::string& name_or_file) {
  for (const KnownHardware& known : known_hardware())
    if (known.name == name_or_file) return parse_hardware(known.json, "--hardware " + name_or_file);
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(name_or_file, ignored))
    throw UsageError("--hardware {}: no such file, and none of {}", name_or_file, fmt::join(hardware_names(), ", "));
  return parse_hardware(read_text(name_or_file, kLargestFile), "--hardware " + name_or_file);
}

}  // namespace zeepo
