// How fast a machine is: what a probe has measured, as text, as JSON and in a file that later commands read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "zeepo/device/stream.h"

namespace zeepo {

// All of it by one rank while the others of its machine do the same; a second.
struct MachineRates {
  struct Link {
    double up = 0, down = 0;  // bytes from host memory to the device, and back, each alone
    double both = 0;          // each way, both at once
  };
  struct Files {
    std::string path;
    double read = 0, write = 0;                // bytes past the page cache, as swap files are moved
    double cached_read = 0, cached_write = 0;  // bytes through it
  };
  struct Collectives {
    double all_gather = 0, reduce_scatter = 0;  // bytes that a rank sends
    double all_reduce_seconds = 0;              // of one number
  };

  std::string date;     // of the measurement: 2026-11-16T17:00:00Z
  std::string machine;  // its name
  Backend backend = Backend::cpu;
  int ranks = 1, ranks_on_node = 1, threads = 1;
  std::map<std::string, double> matmul_flops;  // of the device, by dtype
  double attention_flops = 0;                  // of the device, in 16 bits on a GPU, else in fp32
  double device_memory = 0;                    // bytes read and written by a kernel that copies
  double kernel_seconds = 0;                   // of a kernel with nothing to do
  double host_memory = 0;                      // bytes, a triad by all threads
  Link link;
  double host_steps = 0;  // elements of AdamW in fp32, by the host while the link is busy
  std::optional<Files> files;
  std::optional<Collectives> collectives;  // of several ranks
};

nlohmann::ordered_json to_json(const MachineRates& rates);
// Throws Error for what to_json has not written.
MachineRates rates_from(const nlohmann::ordered_json& json);
std::string text_of(const MachineRates& rates);

// Where the rates of this machine are kept, by backend and number of ranks: under $XDG_CACHE_HOME or ~/.cache. Empty
// where there is neither.
std::filesystem::path rates_path(const std::string& machine, Backend backend, int ranks);
// The last that were kept; nothing where there are none, or a file that cannot be read.
std::optional<MachineRates> kept_rates(const std::filesystem::path& path);
// Makes the directory. Throws Error.
void keep(const MachineRates& rates, const std::filesystem::path& path);

}  // namespace zeepo
