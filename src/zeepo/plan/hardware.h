// Machines that need not be there, described in JSON: nodes, GPUs, links, disks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/device/simulated_time.h"

namespace zeepo {

struct Hardware {
  std::string name;
  int nodes = 1, gpus_per_node = 1;
  std::int64_t device_bytes = 0;                // of a GPU
  std::int64_t host_bytes = 0, nvme_bytes = 0;  // of a node
  SimulatedRates rates;                         // of one GPU and its share of the node, all GPUs busy
};

// {"name":"..","nodes":4,"gpus_per_node":8,
//  "gpu":{"memory":"80GiB","tflops":{"fp32":..,"16bit":..,"fp8":..},"attention_tflops":..,"memory_gbps":..,"kernel_us":..},
//  "host":{"memory":"1TiB","step_gelements":..},"link":{"to_device_gbps":..,"to_host_gbps":..},
//  "network":{"within_node_gbps":..,"between_nodes_gbps":..,"collective_us":..},
//  "disk":{"size":"15TB","read_gbps":..,"write_gbps":..}}
// Rates are of one GPU's share; GB/s and TFLOP/s of 10^9 and 10^12. "disk" and "fp8" may be absent. `what` names the
// text in errors. Throws UsageError for a key that is missing, unknown or out of range.
Hardware parse_hardware(std::string_view json, const std::string& what);

// One that comes with zeepo, by name, or of a file.
Hardware find_hardware(const std::string& name_or_file);
std::vector<std::string> hardware_names();

}  // namespace zeepo
