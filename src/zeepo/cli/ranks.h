// A command as one rank of a job, or as all of it.
#pragma once

#include <functional>

#include "zeepo/comm/carrier.h"
#include "zeepo/comm/launch.h"
#include "zeepo/device/stream.h"

namespace zeepo::cli {

struct RankOptions {
  Backend backend = Backend::cpu;
  Carrier carrier = Carrier::automatic;
  double timeout_seconds = 0;   // 0: none
  double bytes_per_second = 0;  // of a simulated link between the ranks; 0: as it is
};

// Runs f with the ranks that the launcher has started. What goes wrong on one rank ends the job on all; a usage error
// is told once.
void run_as_ranks(const Launch& launch, const RankOptions& options, const std::function<void(Communicator&)>& f);

}  // namespace zeepo::cli
