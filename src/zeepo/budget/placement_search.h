// Chooses what is offloaded: the fastest tiers are filled first, and what costs least to be away leaves first.
//
// What leaves the device is found rung by rung of a ladder; each rung costs more for a byte it frees than the one
// before (docs/tiers.md has the figures): the optimizer's state, activations computed again, their checkpoints,
// parameters, room for prefetching. Of the rung that fits, as little is taken as fits. Files are used only where the
// host has no room on any rung, and by what is moved least often. Pure: what a choice needs of each tier is asked of
// `plan`, which gives the same on every rank.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "zeepo/zero/placement.h"

namespace zeepo {

using PlaceBytes = std::array<std::int64_t, kPlaces.size()>;

// What is chosen.
struct Arrangement {
  Placement placement;
  bool activation_checkpointing = false;
  std::int64_t prefetch_bytes = 0;
};

// As options of `zeepo train` that give the same again; for programs.
std::string flags_of(const Arrangement& arrangement);
nlohmann::ordered_json to_json(const Arrangement& arrangement);

// Which of it may be chosen; the rest stays as it is given.
struct OpenChoices {
  bool params = false, optimizer = false, activations = false, prefetch = false;
  bool any() const { return params || optimizer || activations || prefetch; }
};

struct PlacementSearch {
  // Shares are multiples of one in this many.
  static constexpr int kSteps = 1000;

  Arrangement given;
  OpenChoices open;
  PlaceBytes budgets;                                  // 0 of nvme: there are no files
  std::function<PlaceBytes(const Arrangement&)> plan;  // what a step needs of each tier

  struct Result {
    Arrangement arrangement;  // where nothing fits: the one that needs least of the device
    PlaceBytes bytes;
    bool fits;
  };
  Result run() const;
};

}  // namespace zeepo
