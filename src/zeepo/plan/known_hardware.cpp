#include "zeepo/plan/known_hardware.h"

namespace zeepo {
namespace {

// ZeRO-Infinity (2021): 70 TFLOP/s of large products at best, of which a model's reach 55; 3.0 GB/s a GPU of host
// memory and 1.6 of NVMe with all 16 at once; 8 InfiniBand cards of 100 Gbit/s; NVSwitch.
constexpr std::string_view kDgx2 = R"({
  "name": "DGX-2, 16 V100", "nodes": 32, "gpus_per_node": 16,
  "gpu": {"memory": "32GiB", "tflops": {"fp32": 14, "16bit": 55}, "attention_tflops": 25, "memory_gbps": 800,
          "kernel_us": 5},
  "host": {"memory": "1500GiB", "step_gelements": 0.3},
  "link": {"to_device_gbps": 3.0, "to_host_gbps": 3.0},
  "network": {"within_node_gbps": 110, "between_nodes_gbps": 6, "collective_us": 40},
  "disk": {"size": "28TB", "read_gbps": 1.6, "write_gbps": 1.6}})";

constexpr std::string_view kDgxA100 = R"({
  "name": "DGX A100, 8 A100 of 80 GB", "nodes": 1, "gpus_per_node": 8,
  "gpu": {"memory": "80GiB", "tflops": {"fp32": 110, "16bit": 250}, "attention_tflops": 140, "memory_gbps": 1750,
          "kernel_us": 4},
  "host": {"memory": "2000GiB", "step_gelements": 0.6},
  "link": {"to_device_gbps": 20, "to_host_gbps": 20},
  "network": {"within_node_gbps": 230, "between_nodes_gbps": 22, "collective_us": 30},
  "disk": {"size": "30TB", "read_gbps": 3.0, "write_gbps": 2.0}})";

constexpr std::string_view kDgxH100 = R"({
  "name": "DGX H100, 8 H100 of 80 GB", "nodes": 1, "gpus_per_node": 8,
  "gpu": {"memory": "80GiB", "tflops": {"fp32": 400, "16bit": 680, "fp8": 1250}, "attention_tflops": 400,
          "memory_gbps": 2900, "kernel_us": 3},
  "host": {"memory": "2000GiB", "step_gelements": 0.9},
  "link": {"to_device_gbps": 40, "to_host_gbps": 40},
  "network": {"within_node_gbps": 380, "between_nodes_gbps": 45, "collective_us": 25},
  "disk": {"size": "30TB", "read_gbps": 3.5, "write_gbps": 2.5}})";

constexpr std::string_view kH200 = R"({
  "name": "a node of 8 H200", "nodes": 1, "gpus_per_node": 8,
  "gpu": {"memory": "139GiB", "tflops": {"fp32": 400, "16bit": 740, "fp8": 1350}, "attention_tflops": 430,
          "memory_gbps": 4200, "kernel_us": 3},
  "host": {"memory": "2000GiB", "step_gelements": 0.9},
  "link": {"to_device_gbps": 40, "to_host_gbps": 40},
  "network": {"within_node_gbps": 380, "between_nodes_gbps": 45, "collective_us": 25},
  "disk": {"size": "30TB", "read_gbps": 3.5, "write_gbps": 2.5}})";

constexpr std::string_view kConsumer = R"({
  "name": "one RTX 4090", "nodes": 1, "gpus_per_node": 1,
  "gpu": {"memory": "24GiB", "tflops": {"fp32": 70, "16bit": 150, "fp8": 280}, "attention_tflops": 110,
          "memory_gbps": 900, "kernel_us": 4},
  "host": {"memory": "64GiB", "step_gelements": 0.9},
  "link": {"to_device_gbps": 24, "to_host_gbps": 24},
  "network": {"within_node_gbps": 20, "between_nodes_gbps": 1.2, "collective_us": 40},
  "disk": {"size": "2TB", "read_gbps": 6.0, "write_gbps": 4.0}})";

}  // namespace

const std::vector<KnownHardware>& known_hardware() {
  static const std::vector<KnownHardware> all{
      {"dgx2-v100", kDgx2}, {"dgx-a100", kDgxA100}, {"dgx-h100", kDgxH100}, {"h200", kH200}, {"rtx4090", kConsumer}};
  return all;
}

}  // namespace zeepo
