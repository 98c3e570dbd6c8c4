// How many bytes of each tier a rank may use: what the options say, else what the machine has.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "zeepo/budget/memory_plan.h"
#include "zeepo/comm/gpu_place.h"

namespace zeepo {

// What is asked of the tiers.
struct TierOptions {
  std::string command;  // that errors name
  Backend backend = Backend::cpu;
  std::int64_t device_bytes = 0, host_bytes = 0, nvme_bytes = 0;  // --memory; 0: not given
  std::vector<std::filesystem::path> nvme_paths = {};
  bool fills_files = false;  // with --placement auto: what is free must be known
};

// A rank's share of its machine. Numbers only, so that planning asks the machine once, and ranks can tell each other.
struct RankRoom {
  std::int64_t device_bytes = 0;                                     // of the device
  std::int64_t host_bytes = 0;                                       // of the host, with what is in use
  std::int64_t free_host_bytes = 0;                                  // without
  std::int64_t free_nvme_bytes = 0;                                  // in all --nvme-path together, striped evenly
  std::int64_t device_option = 0, host_option = 0, nvme_option = 0;  // --memory; 0: not given
  bool files = false;                                                // there is a --nvme-path
  bool one_memory = false;                                           // the device's memory is the host's

  friend bool operator==(const RankRoom&, const RankRoom&) = default;
};

// Throws Error for a --nvme-path whose free bytes cannot be told and must be known.
RankRoom room_of(const TierOptions& options, const GpuPlace& place, int ranks_on_node);
// Every rank's, in rank order. A collective.
std::vector<RankRoom> gather_rooms(Communicator& communicator, const RankRoom& own);

// For a placement that is given. Files may take what they need, unless --memory nvme= says less.
PlaceBytes budgets_of(const RankRoom& room, const MemoryPlan& plan);
// For --placement auto: what may be filled. 0 of nvme: there are no files.
PlaceBytes budgets_to_fill(const RankRoom& room);

// The least of any rank, so that all ranks choose the same.
PlaceBytes least_budgets(const std::vector<RankRoom>& rooms, const MemoryPlan& plan);
PlaceBytes least_to_fill(const std::vector<RankRoom>& rooms);

// Throws Error naming need, budget and way out for the first tier that is too small. `work` is what needs it: "a step".
using AdviceOfTiers = std::array<const char*, kPlaces.size()>;
void check_fits(const MemoryPlan& plan, const PlaceBytes& budgets, const TierOptions& options, const GpuPlace& place,
                const char* work, const AdviceOfTiers& advice);

}  // namespace zeepo
