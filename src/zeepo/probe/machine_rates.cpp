#include "zeepo/probe/machine_rates.h"

#include <cmath>
#include <cstdlib>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/metrics/event_sink.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of_backend(Backend backend) { return backend == Backend::cuda ? "cuda" : "cpu"; }

// Of a rate that was measured: finite and above 0.
double rate_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  const double value = found != json.end() && found->is_number() ? found->get<double>() : NAN;
  if (!(value > 0 && std::isfinite(value))) throw Error("a probe's file: {} must be a number above 0", key);
  return value;
}

const Json& object_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) throw Error("a probe's file: {} must be an object", key);
  return *found;
}

std::string text_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_string()) throw Error("a probe's file: {} must be a text", key);
  return found->get<std::string>();
}

int count_in(const Json& json, const char* key) {
  const double value = rate_in(json, key);
  if (value != std::floor(value) || value > 1e6) throw Error("a probe's file: {} must be a small whole number", key);
  return static_cast<int>(value);
}

std::string gigabytes(double bytes) { return fmt::format("{:.3g} GB/s", bytes / 1e9); }

std::string operations(double flops) {
  return flops < 1e12 ? fmt::format("{:.3g} GFLOP/s", flops / 1e9) : fmt::format("{:.3g} TFLOP/s", flops / 1e12);
}

std::string line(const char* name, const std::string& text) { return fmt::format("{:<16}{}\n", name, text); }

}  // namespace

Json to_json(const MachineRates& rates) {
  Json json{{"date", rates.date},
            {"machine", rates.machine},
            {"device", name_of_backend(rates.backend)},
            {"ranks", rates.ranks},
            {"ranks_on_node", rates.ranks_on_node},
            {"threads", rates.threads},
            {"matmul_flops", Json::object()},
            {"attention_flops", rates.attention_flops},
            {"device_memory_bytes_per_second", rates.device_memory},
            {"kernel_seconds", rates.kernel_seconds},
            {"host_memory_bytes_per_second", rates.host_memory},
            {"link_bytes_per_second",
             {{"host_to_device", rates.link.up}, {"device_to_host", rates.link.down}, {"both", rates.link.both}}},
            {"host_step_elements_per_second", rates.host_steps}};
  for (const auto& [dtype, flops] : rates.matmul_flops) json["matmul_flops"][dtype] = flops;
  if (rates.files)
    json["files"] = {{"path", rates.files->path},
                     {"read_bytes_per_second", rates.files->read},
                     {"write_bytes_per_second", rates.files->write},
                     {"cached_read_bytes_per_second", rates.files->cached_read},
                     {"cached_write_bytes_per_second", rates.files->cached_write}};
  if (rates.collectives)
    json["collectives"] = {{"all_gather_bytes_per_second", rates.collectives->all_gather},
                           {"reduce_scatter_bytes_per_second", rates.collectives->reduce_scatter},
                           {"all_reduce_seconds", rates.collectives->all_reduce_seconds}};
  return json;
}

MachineRates rates_from(const Json& json) {
  if (!json.is_object()) throw Error("a probe's file: must be an object");
  MachineRates rates;
  rates.date = text_in(json, "date");
  rates.machine = text_in(json, "machine");
  const std::string device = text_in(json, "device");
  if (device != "cpu" && device != "cuda") throw Error("a probe's file: device {}: must be cpu or cuda", device);
  rates.backend = device == "cuda" ? Backend::cuda : Backend::cpu;
  rates.ranks = count_in(json, "ranks");
  rates.ranks_on_node = count_in(json, "ranks_on_node");
  rates.threads = count_in(json, "threads");
  const Json& flops = object_in(json, "matmul_flops");
  for (const char* dtype : {"fp32", "bf16"}) rate_in(flops, dtype);  // a plan of any dtype goes by one of these
  for (const auto& [dtype, value] : flops.items()) rates.matmul_flops[dtype] = rate_in(flops, dtype.c_str());
  rates.attention_flops = rate_in(json, "attention_flops");
  rates.device_memory = rate_in(json, "device_memory_bytes_per_second");
  rates.kernel_seconds = rate_in(json, "kernel_seconds");
  rates.host_memory = rate_in(json, "host_memory_bytes_per_second");
  const Json& link = object_in(json, "link_bytes_per_second");
  rates.link = {rate_in(link, "host_to_device"), rate_in(link, "device_to_host"), rate_in(link, "both")};
  rates.host_steps = rate_in(json, "host_step_elements_per_second");
  if (json.contains("files")) {
    const Json& files = object_in(json, "files");
    rates.files = {text_in(files, "path"), rate_in(files, "read_bytes_per_second"),
                   rate_in(files, "write_bytes_per_second"), rate_in(files, "cached_read_bytes_per_second"),
                   rate_in(files, "cached_write_bytes_per_second")};
  }
  if (json.contains("collectives")) {
    const Json& collectives = object_in(json, "collectives");
    rates.collectives = {rate_in(collectives, "all_gather_bytes_per_second"),
                         rate_in(collectives, "reduce_scatter_bytes_per_second"),
                         rate_in(collectives, "all_reduce_seconds")};
  }
  return rates;
}

std::string text_of(const MachineRates& rates) {
  std::string text =
      line("machine", fmt::format("{}, {}, {} rank{}, {} thread{} a rank; {}", rates.machine,
                                  name_of_backend(rates.backend), rates.ranks, rates.ranks == 1 ? "" : "s",
                                  rates.threads, rates.threads == 1 ? "" : "s", rates.date));
  for (const auto& [dtype, flops] : rates.matmul_flops) text += line("matrix product", dtype + " " + operations(flops));
  text += line("attention", operations(rates.attention_flops));
  text += line("device memory", gigabytes(rates.device_memory) + " read and written");
  text += line("a kernel", fmt::format("{:.3g} us at least", 1e6 * rates.kernel_seconds));
  text += line("host memory", gigabytes(rates.host_memory) + " (triad)");
  text += line("host to device", gigabytes(rates.link.up));
  text += line("device to host", gigabytes(rates.link.down));
  text += line("both at once", gigabytes(rates.link.both) + " each way");
  text += line("optimizer step", fmt::format("{:.3g} G elements/s by the host", rates.host_steps / 1e9));
  if (rates.files) {
    text += line("files", rates.files->path);
    text +=
        line("  direct", fmt::format("read {}, write {}", gigabytes(rates.files->read), gigabytes(rates.files->write)));
    text += line("  page cache", fmt::format("read {}, write {}", gigabytes(rates.files->cached_read),
                                             gigabytes(rates.files->cached_write)));
  }
  if (rates.collectives) {
    text += line("all-gather", gigabytes(rates.collectives->all_gather) + " sent by a rank");
    text += line("reduce-scatter", gigabytes(rates.collectives->reduce_scatter) + " sent by a rank");
    text += line("all-reduce", fmt::format("{:.3g} us for one number", 1e6 * rates.collectives->all_reduce_seconds));
  }
  return text;
}

std::filesystem::path rates_path(const std::string& machine, Backend backend, int ranks) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path directory;
  if (cache != nullptr && *cache != '\0')
    directory = cache;
  else if (home != nullptr && *home != '\0')
    directory = std::filesystem::path(home) / ".cache";
  else
    return {};
  std::string name = machine;
  for (char& c : name)
    if (c == '/' || c == '\0') c = '_';
  return directory / "zeepo" / fmt::format("probe-{}-{}-{}.json", name, name_of_backend(backend), ranks);
}

std::optional<MachineRates> kept_rates(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.empty() || !std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  try {
    return rates_from(Json::parse(read_text(path)));
  } catch (const std::exception&) {  // of another version, or damaged: as if there was none
    return std::nullopt;
  }
}

void keep(const MachineRates& rates, const std::filesystem::path& path) {
  std::error_code code;
  std::filesystem::create_directories(path.parent_path(), code);
  if (code)
    throw Error("probe: the result cannot be kept for plans: cannot make {}: {}", path.parent_path().string(),
                code.message());
  OutputFile file(path);
  file.write(line_of(to_json(rates)));
  file.commit();
}

}  // namespace zeepo
