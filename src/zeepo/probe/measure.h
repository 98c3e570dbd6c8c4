// Measures this machine as the engine uses it: its own kernels, copy lanes, swap files and collectives.
#pragma once

#include <filesystem>
#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/comm/gpu_place.h"
#include "zeepo/probe/machine_rates.h"

namespace zeepo {

struct ProbeOptions {
  Backend backend = Backend::cpu;
  int threads = 0;                                     // 0: see choose_threads
  std::vector<std::filesystem::path> nvme_paths = {};  // none: no files are measured
};

// A collective: all ranks measure at once, since what they share bounds them together. The slowest rank's counts.
// Takes a few seconds and about a GiB of host memory; files are unnamed and gone afterwards.
MachineRates measure_machine(const ProbeOptions& options, const GpuPlace& place, Communicator& communicator);

// Of this machine, as its rates are kept under.
std::string machine_name();

}  // namespace zeepo
