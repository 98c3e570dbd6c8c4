// How --placement auto comes to what lives where: by bytes alone, or, where the machine has been measured, by time.
//
// A Trainer asks once, before any memory is taken, and every rank must come to the same. What goes by time needs the
// layers above (plan/timed_placement.h), so it is given to the Trainer by who knows these.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/train/planning.h"

namespace zeepo {

struct PlacementChoice {
  enum class By { bytes, time };

  RunSetup setup;  // with the placement
  By by = By::bytes;
  std::string why = {};                     // for people: what it was chosen by, and what else there was
  std::string probe_date = {};              // of what was measured; empty: nothing
  std::optional<double> step_seconds = {};  // as predicted
};

// A collective. `rooms` are those of all ranks. Throws Error when no placement fits.
using ChoosePlacement =
    std::function<PlacementChoice(const RunSetup& setup, const std::vector<RankRoom>& rooms, Communicator& ranks)>;

// Fills the fastest tiers first (budget/placement_search.h).
PlacementChoice placement_by_bytes(const RunSetup& setup, const std::vector<RankRoom>& rooms, Communicator& ranks);

// For the log's plan event, beside the placement.
nlohmann::ordered_json to_json(const PlacementChoice& choice);

}  // namespace zeepo
