#include "zeepo/elastic/launch_command.h"

#include <unistd.h>

#include <cstdlib>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

// What a setting of Open MPI is, unless the environment has one.
void set(std::vector<std::string>& command, const char* name, const char* value) {
  if (std::getenv((std::string("OMPI_MCA_") + name).c_str()) != nullptr) return;
  command.insert(command.end(), {"--mca", name, value});
}

}  // namespace

std::vector<std::string> launch_command(const RankLayout& layout, const std::string& program, const OptionTexts& texts,
                                        const std::string& config) {
  std::string hosts;
  for (const HostSlots& host : layout.hosts)
    hosts += fmt::format("{}{}:{}", hosts.empty() ? "" : ",", host.name, host.slots);
  std::vector<std::string> command{"mpirun",   "-n",  fmt::format("{}", layout.ranks), "--host", hosts,
                                   "--map-by", "slot"};
  if (::geteuid() == 0) command.push_back("--allow-run-as-root");
  set(command, "hwloc_base_binding_policy", "none");  // all threads of a rank would share its core
  // A daemon whose link to mpirun is cut ends by itself.
  set(command, "oob_tcp_keepalive_time", "10");
  set(command, "oob_tcp_keepalive_intvl", "5");
  set(command, "oob_tcp_keepalive_probes", "4");
  command.insert(command.end(), {program, "train"});
  if (!config.empty()) command.push_back("--config=" + config);
  for (const auto& [name, text] : texts) {
    if (name == "--elastic" || name == "--hosts" || name == "--ranks-per-host" || name == "--grad-accum" ||
        name == "--resume")
      continue;
    const TrainOption* option = find_option(name);
    if (option == nullptr || !option->is_flag)
      command.push_back(name + "=" + text);
    else if (text == "true")
      command.push_back(name);
  }
  command.push_back(fmt::format("--grad-accum={}", layout.grad_accum));
  command.push_back("--resume");
  return command;
}

}  // namespace zeepo
