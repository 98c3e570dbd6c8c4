// Memory over the NUMA nodes of a machine: spread over those whose CPUs this process may run on, or near the one that
// it is bound to. On a machine of one node nothing is done.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace zeepo {

struct NumaNode {
  int id;
  std::vector<int> cpus;
};

// The kernel's lists: "0-3,8" is 0, 1, 2, 3, 8. Throws Error naming the text when it is not one.
std::vector<int> parse_number_list(std::string_view text);

// Nodes that have memory, as the kernel tells; none where it tells of none.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& directory = "/sys/devices/system/node");

// Where memory that all threads of the process use should be.
struct NumaChoice {
  enum class Policy { none, near, interleave } policy = Policy::none;
  std::vector<int> nodes;
};
NumaChoice choose_nodes(const std::vector<NumaNode>& nodes, const std::vector<int>& allowed_cpus);
// For this process on this machine, found out once.
const NumaChoice& numa_choice();

// Memory that has not been touched yet comes from the chosen nodes when it is.
void place_on_nodes(void* memory, std::size_t bytes, const NumaChoice& choice = numa_choice());
// One line for the log; empty where there is one node. Where the kernel has refused, the reason.
std::string describe_numa(const NumaChoice& choice = numa_choice());

}  // namespace zeepo
