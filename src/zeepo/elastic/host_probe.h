// Whether a host answers: `ssh HOST true`, beside other work.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "zeepo/elastic/child_process.h"
#include "zeepo/elastic/host_list.h"

namespace zeepo {

class HostProbe {
 public:
  explicit HostProbe(const std::string& host);
  // Nothing while it is not known. This machine always answers.
  std::optional<bool> answers();

 private:
  std::unique_ptr<ChildProcess> ssh_;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// Those that answer now, all asked at once. Ends early, with none, where a signal asks this process to end.
std::vector<HostSlots> hosts_that_answer(const std::vector<HostSlots>& hosts);

}  // namespace zeepo
