#include "zeepo/base/numa.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fstream>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

std::atomic<int> refusal{0};  // errno of the last mbind that failed

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);  // empty where there is no such file
  return line;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};  // more CPUs than the set holds: no choice is made
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

}  // namespace

std::vector<int> parse_number_list(std::string_view text) {
  std::vector<int> numbers;
  const char *at = text.data(), *end = text.data() + text.size();
  const auto fail = [&]() { throw Error("\"{}\" is not a list of numbers like 0-3,8", text); };
  const auto number = [&] {
    int value = 0;
    const auto [after, code] = std::from_chars(at, end, value);
    if (code != std::errc{} || value < 0) fail();
    at = after;
    return value;
  };
  while (at != end) {
    const int first = number();
    int last = first;
    if (at != end && *at == '-') {
      ++at;
      last = number();
    }
    constexpr int kMost = 1 << 16;
    if (last < first || last > kMost) fail();
    for (int value = first; value <= last; ++value) numbers.push_back(value);
    if (at == end) break;
    if (*at++ != ',' || at == end) fail();
  }
  return numbers;
}

std::vector<NumaNode> numa_nodes(const std::filesystem::path& directory) {
  std::vector<NumaNode> nodes;
  for (const int id : parse_number_list(first_line(directory / "has_memory")))
    nodes.push_back({id, parse_number_list(first_line(directory / fmt::format("node{}", id) / "cpulist"))});
  return nodes;
}

NumaChoice choose_nodes(const std::vector<NumaNode>& nodes, const std::vector<int>& allowed_cpus) {
  if (nodes.size() < 2) return {};
  NumaChoice choice;
  for (const NumaNode& node : nodes)
    if (std::ranges::any_of(node.cpus, [&](int cpu) { return std::ranges::count(allowed_cpus, cpu) > 0; }))
      choice.nodes.push_back(node.id);
  if (!choice.nodes.empty())
    choice.policy = choice.nodes.size() == 1 ? NumaChoice::Policy::near : NumaChoice::Policy::interleave;
  return choice;
}

const NumaChoice& numa_choice() {
  static const NumaChoice choice = choose_nodes(numa_nodes(), allowed_cpus());
  return choice;
}

// Near means preferred: a node that is full sends the rest to its neighbours, where a strict binding would end the run.
void place_on_nodes(void* memory, std::size_t bytes, const NumaChoice& choice) {
  if (choice.policy == NumaChoice::Policy::none || bytes == 0) return;
  constexpr std::size_t kBits = sizeof(unsigned long) * CHAR_BIT;
  std::vector<unsigned long> mask(static_cast<std::size_t>(choice.nodes.back()) / kBits + 1);
  for (const int node : choice.nodes)
    mask[static_cast<std::size_t>(node) / kBits] |= 1UL << (static_cast<std::size_t>(node) % kBits);
  const int policy = choice.policy == NumaChoice::Policy::near ? MPOL_PREFERRED : MPOL_INTERLEAVE;
  // The kernel reads one bit less than it is told.
  if (::syscall(SYS_mbind, memory, bytes, policy, mask.data(), mask.size() * kBits + 1, 0) != 0) refusal = errno;
}

std::string describe_numa(const NumaChoice& choice) {
  if (choice.policy == NumaChoice::Policy::none) return {};
  if (const int code = refusal)
    return fmt::format("memory is not placed on NUMA nodes {}: {}", fmt::join(choice.nodes, ", "), std::strerror(code));
  return choice.policy == NumaChoice::Policy::near
             ? fmt::format("memory near NUMA node {}", choice.nodes[0])
             : fmt::format("memory spread over NUMA nodes {}", fmt::join(choice.nodes, ", "));
}

}  // namespace zeepo
