#include "zeepo/comm/launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/comm/self/self_communicator.h"

namespace zeepo {
namespace {

// Names of the variables in which one launcher says where a rank stands; the last two may be missing.
struct Variables {
  const char *rank, *size, *local_rank, *local_size;
};

constexpr Variables kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

std::optional<int> number_in(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  if (const auto [stop, error] = std::from_chars(text, end, value); error != std::errc{} || stop != end || value < 0)
    throw Error("environment variable {}=\"{}\": must be a number from 0", name, text);
  return value;
}

// Tasks on node `node` of "4(x2),3": 4, 4 and 3.
std::optional<int> tasks_on_node(std::string_view text, int node) {
  while (!text.empty()) {
    int tasks = 0, nodes = 1;
    auto [at, error] = std::from_chars(text.data(), text.data() + text.size(), tasks);
    if (error != std::errc{}) return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(at - text.data()));
    if (text.starts_with("(x")) {
      if (std::from_chars(text.data() + 2, text.data() + text.size(), nodes).ec != std::errc{}) return std::nullopt;
      text.remove_prefix(std::min(text.size(), text.find(')') + 1));
    }
    if (node < nodes) return tasks;
    node -= nodes;
    if (text.starts_with(",")) text.remove_prefix(1);
  }
  return std::nullopt;
}

// A batch script sees the variables of its whole job too, but only what srun starts has the number of a step.
bool in_batch_script() {
  if (std::getenv("SLURM_JOB_ID") == nullptr) return false;
  const char* step = std::getenv("SLURM_STEP_ID");
  return step == nullptr || std::string_view(step) == "4294967291" || std::string_view(step) == "4294967294";
}

std::optional<int> slurm_local_size() {
  const char* tasks = std::getenv("SLURM_STEP_TASKS_PER_NODE");
  return tasks == nullptr ? std::nullopt : tasks_on_node(tasks, number_in("SLURM_NODEID").value_or(0));
}

}  // namespace

Launch detect_launch() {
  for (const Variables& names : kLaunchers) {
    const bool slurm = std::string_view(names.rank).starts_with("SLURM");
    if (std::getenv(names.rank) == nullptr || std::getenv(names.size) == nullptr) continue;
    if (slurm && in_batch_script()) continue;
    Launch launch{.rank = *number_in(names.rank), .size = *number_in(names.size), .mpi = true};
    if (slurm) launch.size = number_in("SLURM_STEP_NUM_TASKS").value_or(launch.size);
    const std::optional<int> local_size = slurm ? slurm_local_size() : number_in(names.local_size);
    launch.local_rank = number_in(names.local_rank).value_or(launch.rank);
    launch.local_size = local_size.value_or(launch.size);
    if (launch.rank >= launch.size || launch.local_rank >= launch.local_size)
      throw Error("environment variables {}={} and {}={} (on this machine {} of {}): ranks must be below their number",
                  names.rank, launch.rank, names.size, launch.size, launch.local_rank, launch.local_size);
    return launch;
  }
  return {};
}

std::unique_ptr<Communicator> make_communicator(const Launch& launch) {
  if (launch.size == 1) return std::make_unique<SelfCommunicator>();
  return make_mpi_communicator(launch);
}

}  // namespace zeepo
