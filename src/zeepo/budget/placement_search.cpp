#include "zeepo/budget/placement_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr int kAll = PlacementSearch::kSteps;

// How much has left the device, and how much of that is in files; in steps.
struct Depth {
  int optimizer = 0, params = 0, prefetch = 0;  // prefetch: how much of it is given up
  bool checkpointing = false, activations = false;
};
struct InFiles {
  int optimizer = 0, params = 0;
  bool activations = false;
};

Shares shares_of(int below, int in_files) {
  const int files = std::min(in_files, below);
  return {static_cast<double>(below - files) / kAll, static_cast<double>(files) / kAll};
}

class Ladder {
 public:
  explicit Ladder(const PlacementSearch& search) : search_(search) {}

  PlacementSearch::Result climb() {
    const auto rungs = this->rungs();
    for (const Rung& rung : rungs)
      if (const auto depth = least_depth(rung, {}))
        if (const auto result = taken(*depth, {}); result.fits) return result;
    if (in_files_possible())
      for (const Rung& rung : rungs) {
        if (!rung.in_files) continue;
        const auto depth = least_depth(rung, everything_in_files());
        if (!depth) continue;
        if (const auto result = taken(*depth, least_in_files(*depth)); result.fits) return result;
      }
    return taken(rungs.back().at(kAll), in_files_possible() ? everything_in_files() : InFiles{});
  }

 private:
  using At = std::function<Depth(int)>;
  struct Rung {
    At at;
    bool steps;     // between 0 and kAll; else only kAll
    bool in_files;  // worth it when what leaves goes to files
  };

  bool in_files_possible() const { return search_.budgets[2] > 0; }
  static InFiles everything_in_files() { return {.optimizer = kAll, .params = kAll, .activations = true}; }

  // Activations computed again cost no link: they go before anything is put into files.
  std::vector<Rung> rungs() const {
    const OpenChoices& open = search_.open;
    std::vector<Rung> rungs;
    Depth base;
    const auto add = [&](bool with_optimizer, bool in_files) {
      if (with_optimizer && open.optimizer)
        rungs.push_back({[base](int steps) {
                           Depth depth = base;
                           depth.optimizer = steps;
                           return depth;
                         },
                         true, in_files});
      else
        rungs.push_back({[base](int) { return base; }, false, in_files});
    };
    const bool checkpointed = search_.given.activation_checkpointing;
    add(false, checkpointed);
    if (open.optimizer) add(true, checkpointed);
    if (!checkpointed) {
      base.checkpointing = true;
      add(true, true);
    }
    if (open.activations) {
      base.activations = true;
      add(true, true);
    }
    base.optimizer = kAll;
    if (open.params) {
      rungs.push_back({[base](int steps) {
                         Depth depth = base;
                         depth.params = steps;
                         return depth;
                       },
                       true, true});
      base.params = kAll;
    }
    if (open.prefetch)
      rungs.push_back({[base](int steps) {
                         Depth depth = base;
                         depth.prefetch = steps;
                         return depth;
                       },
                       true, true});
    return rungs;
  }

  Arrangement arrangement(const Depth& depth, const InFiles& files) const {
    Arrangement result = search_.given;
    const OpenChoices& open = search_.open;
    if (open.optimizer) result.placement.optimizer = shares_of(depth.optimizer, files.optimizer);
    if (open.params) result.placement.params = shares_of(depth.params, files.params);
    if (open.activations && depth.activations)
      result.placement.activations = files.activations ? Place::nvme : Place::host;
    result.activation_checkpointing = result.activation_checkpointing || depth.checkpointing;
    if (open.prefetch)
      result.prefetch_bytes =
          depth.prefetch == kAll ? 0 : result.prefetch_bytes - result.prefetch_bytes / kAll * depth.prefetch;
    return result;
  }

  PlaceBytes needs(const Depth& depth, const InFiles& files) const { return search_.plan(arrangement(depth, files)); }

  PlacementSearch::Result taken(const Depth& depth, const InFiles& files) const {
    const Arrangement chosen = arrangement(depth, files);
    const PlaceBytes bytes = search_.plan(chosen);
    bool fits = true;
    for (std::size_t i = 0; i < bytes.size(); ++i) fits = fits && bytes[i] <= search_.budgets[i];
    return {chosen, bytes, fits};
  }

  // The least step in [0, kAll] of which `bytes` is within the limit; nothing when kAll is not. Need is nearly linear
  // in the steps: where a line would cross the limit is tried in turn with the middle.
  static std::optional<int> least_step(const std::function<std::int64_t(int)>& bytes, std::int64_t limit) {
    std::int64_t at_high = bytes(kAll);
    if (at_high > limit) return std::nullopt;
    std::int64_t at_low = bytes(0);
    if (at_low <= limit) return 0;
    int low = 0, high = kAll;
    for (bool line = true; high - low > 1; line = !line) {
      const double slope = static_cast<double>(at_low - limit) / static_cast<double>(at_low - at_high);
      const int crossing = low + static_cast<int>(std::ceil(slope * (high - low)));
      const int middle = line ? std::clamp(crossing, low + 1, high - 1) : (low + high) / 2;
      const std::int64_t at_middle = bytes(middle);
      (at_middle <= limit ? high : low) = middle;
      (at_middle <= limit ? at_high : at_low) = at_middle;
    }
    return high;
  }

  // So that the device has room; nothing where the whole rung does not give it.
  std::optional<Depth> least_depth(const Rung& rung, const InFiles& files) const {
    const auto device = [&](int steps) { return needs(rung.at(steps), files)[0]; };
    if (!rung.steps) return device(kAll) <= search_.budgets[0] ? std::optional(rung.at(kAll)) : std::nullopt;
    const auto steps = least_step(device, search_.budgets[0]);
    return steps ? std::optional(rung.at(*steps)) : std::nullopt;
  }

  // What is moved least often leaves the host first: the optimizer's state, once each way a step; checkpoints, once
  // each way a micro-step; parameters, read twice a micro-step.
  InFiles least_in_files(const Depth& depth) const {
    const auto host = [&](InFiles files) { return needs(depth, files)[1]; };
    const std::int64_t limit = search_.budgets[1];
    InFiles files;
    for (const bool activations : {false, true}) {
      files.activations = activations;
      if (activations && !(depth.activations && search_.open.activations)) continue;
      const auto steps = least_step(
          [&](int optimizer) { return host({.optimizer = optimizer, .params = 0, .activations = activations}); },
          limit);
      if (steps) return {.optimizer = *steps, .params = 0, .activations = activations};
    }
    const auto steps =
        least_step([&](int params) { return host({.optimizer = kAll, .params = params, .activations = true}); }, limit);
    return {.optimizer = kAll, .params = steps.value_or(kAll), .activations = true};
  }

  const PlacementSearch& search_;
};

}  // namespace

std::string flags_of(const Arrangement& arrangement) {
  const Placement& placement = arrangement.placement;
  std::string flags = fmt::format("--offload-optimizer {} --offload-param {} --offload-activations {}",
                                  text_of(placement.optimizer), text_of(placement.params),
                                  placement.activations == Place::device ? "none" : name_of(placement.activations));
  if (placement.cache == CachePolicy::lru) flags += " --cache-policy lru";
  if (arrangement.activation_checkpointing) flags += " --activation-checkpointing";
  return flags + fmt::format(" --prefetch {}", arrangement.prefetch_bytes);
}

nlohmann::ordered_json to_json(const Arrangement& arrangement) {
  const auto shares = [](const Shares& of) {
    return nlohmann::ordered_json{{"device", of.of(Place::device)}, {"host", of.host}, {"nvme", of.nvme}};
  };
  return {{"optimizer", shares(arrangement.placement.optimizer)},
          {"params", shares(arrangement.placement.params)},
          {"activations", name_of(arrangement.placement.activations)},
          {"activation_checkpointing", arrangement.activation_checkpointing},
          {"prefetch_bytes", arrangement.prefetch_bytes}};
}

PlacementSearch::Result PlacementSearch::run() const { return Ladder(*this).climb(); }

}  // namespace zeepo
