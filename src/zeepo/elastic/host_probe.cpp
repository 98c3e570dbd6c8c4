#include "zeepo/elastic/host_probe.h"

#include <poll.h>

#include "zeepo/base/stop_request.h"

namespace zeepo {
namespace {

constexpr auto kLongest = std::chrono::seconds(20);  // a host that is busy, behind a slow link

}  // namespace

HostProbe::HostProbe(const std::string& host) {
  if (is_this_machine(host)) return;
  ssh_ = std::make_unique<ChildProcess>(
      std::vector<std::string>{"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "-n", "-x", host, "true"},
      ChildProcess::Output::none);
}

std::optional<bool> HostProbe::answers() {
  if (!ssh_) return true;
  if (const auto code = ssh_->ended()) return *code == 0;
  if (std::chrono::steady_clock::now() - begun_ > kLongest) return false;
  return std::nullopt;
}

std::vector<HostSlots> hosts_that_answer(const std::vector<HostSlots>& hosts) {
  std::vector<HostProbe> probes;
  for (const HostSlots& host : hosts) probes.emplace_back(host.name);
  std::vector<HostSlots> answering;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    std::optional<bool> answers;
    while (!(answers = probes[i].answers())) {
      if (StopRequest::signal() != 0) return {};
      ::poll(nullptr, 0, 20);
    }
    if (*answers) answering.push_back(hosts[i]);
  }
  return answering;
}

}  // namespace zeepo
