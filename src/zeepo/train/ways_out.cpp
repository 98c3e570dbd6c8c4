#include "zeepo/train/ways_out.h"

#include <algorithm>
#include <functional>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {
namespace {

constexpr std::int64_t kEndless = std::int64_t{1} << 60;

// The run as it would be with other options. They are the same on all ranks; what the machines have stays.
struct Trial {
  TrainOptions options;
  std::vector<RankRoom> rooms;
};
struct Way {
  std::string text;
  std::function<void(Trial&)> change;
};

std::int64_t whole_mebibytes(std::int64_t bytes) { return (bytes + (1 << 20) - 1) >> 20 << 20; }

// In whole MiB, so that it is short and enough.
std::string budget_option(Place place, std::int64_t bytes) {
  return fmt::format("--memory {}={}MiB", name_of(place), bytes >> 20);
}

// Not less than the bytes, when read again.
std::string size_at_least(std::int64_t bytes) {
  for (std::int64_t more = bytes;; more += more / 1000 + 1)
    if (std::string text = format_size(more); parse_size(text) >= bytes) return text;
}

void give(Trial& trial, Place place, std::int64_t bytes) {
  (place == Place::device ? trial.options.device_bytes
   : place == Place::host ? trial.options.host_bytes
                          : trial.options.nvme_bytes) = bytes;
  for (RankRoom& room : trial.rooms)
    (place == Place::device ? room.device_option : place == Place::host ? room.host_option : room.nvme_option) = bytes;
}

class WaysOut {
 public:
  WaysOut(const RunSetup& setup, const std::vector<RankRoom>& rooms, const FoundPlacement& failed)
      : setup_(setup), rooms_(rooms), failed_(failed), budgets_(least_to_fill(rooms)) {}

  std::string text() const {
    std::string text = what_is_missing();
    const bool device_lacks = failed_.bytes[0] > budgets_[0], below_lacks = !fits_below();
    std::vector<Way> below = below_lacks ? ways_below() : std::vector<Way>{};
    std::vector<Way> device = device_lacks ? ways_for_device() : std::vector<Way>{};
    if (device_lacks && below_lacks) {
      keep_pairs(device, below);
    } else {
      std::erase_if(below, [&](const Way& way) { return !fits({&way}); });
      std::erase_if(device, [&](const Way& way) { return !fits({&way}); });
    }
    if (device_lacks && !below_lacks && device.size() < 2)
      if (const auto shorter = half_the_sequence(); shorter && fits({&*shorter})) device.push_back(*shorter);
    if (device_lacks) text += sentence("For the device", device, "a device with more memory");
    if (below_lacks)
      text +=
          sentence("In host memory and files", below, "larger budgets of the host and of files, --memory host=,nvme=");
    return text;
  }

 private:
  // Where both lack something, one way of each is needed: those are kept of which every pair fits.
  void keep_pairs(std::vector<Way>& device, std::vector<Way>& below) const {
    const auto partners = [&](const Way& way) {
      std::vector<Way> found;
      std::ranges::copy_if(below, std::back_inserter(found), [&](const Way& other) { return fits({&way, &other}); });
      return found;
    };
    std::vector<Way> common;
    for (const Way& way : device)
      if (common = partners(way); !common.empty()) break;
    below = common;
    std::erase_if(device, [&](const Way& way) { return below.empty() || partners(way).size() < below.size(); });
  }

  static std::string sentence(const char* where, const std::vector<Way>& ways, const char* otherwise) {
    std::vector<std::string> texts;
    for (const Way& way : ways) texts.push_back(way.text);
    if (texts.empty()) texts.emplace_back(otherwise);
    return fmt::format(" {}: {}.", where, fmt::join(texts, ", or "));
  }

  std::string what_is_missing() const {
    std::string text = "a step does not fit: with all offloaded that may be (";
    text += flags_of(failed_.setup.arrangement()) + ") it needs";
    for (const Place place : kPlaces) {
      const auto i = static_cast<std::size_t>(place);
      if (failed_.bytes[i] == 0) continue;
      text += fmt::format(" {}={} of {},", name_of(place), format_size(failed_.bytes[i]), format_size(budgets_[i]));
    }
    text.back() = '.';
    return text;
  }

  // As the run itself would find it, with these changes on its command line.
  bool fits(const std::vector<const Way*>& ways) const {
    Trial trial{setup_.options, rooms_};
    for (const Way* way : ways) way->change(trial);
    try {
      check(trial.options);
    } catch (const UsageError&) {
      return false;
    }
    return search_placement(setup_.with(trial.options), least_to_fill(trial.rooms)).fits;
  }

  // With a device that is large enough.
  PlaceBytes budgets_below() const {
    PlaceBytes budgets = budgets_;
    budgets[0] = std::max(budgets_[0], failed_.bytes[0]);
    return budgets;
  }
  bool fits_below() const { return search_placement(setup_, budgets_below()).fits; }

  // The least buffers that are tried within a budget grow with it, which takes more of it: until both agree.
  std::optional<std::int64_t> enough_below(Place place) const {
    const auto i = static_cast<std::size_t>(place);
    Trial trial{setup_.options, rooms_};
    PlaceBytes budgets = budgets_below();
    std::int64_t host_bytes = budgets_[static_cast<std::size_t>(Place::host)];
    budgets[i] = kEndless;
    if (place == Place::nvme) trial.options.nvme_paths.emplace_back();  // as if there was one
    constexpr int kRounds = 8;
    for (int round = 0; round < kRounds; ++round) {
      const auto found = search_placement(setup_.with(trial.options), budgets, host_rooms(host_bytes).back());
      if (!found.fits) return std::nullopt;
      const std::int64_t needed = whole_mebibytes(found.bytes[i]);
      if (place == Place::nvme || needed <= host_bytes) return needed;
      trial.options.host_bytes = host_bytes = needed;
    }
    return std::nullopt;
  }

  bool machines_have(std::int64_t bytes, std::int64_t RankRoom::*room) const {
    return std::ranges::all_of(rooms_, [&](const RankRoom& each) { return bytes <= each.*room; });
  }

  // Where the device's memory is the host's, what is given to the one is not there for the other.
  bool machines_have(std::int64_t bytes, std::int64_t RankRoom::*room, std::int64_t RankRoom::*given_to_other) const {
    return std::ranges::all_of(rooms_, [&](const RankRoom& each) {
      return bytes + (each.one_memory ? each.*given_to_other : 0) <= each.*room;
    });
  }

  std::vector<Way> ways_below() const {
    std::vector<Way> ways;
    const auto bytes = enough_below(Place::host);
    if (bytes && machines_have(*bytes, &RankRoom::host_bytes, &RankRoom::device_option))
      ways.push_back({budget_option(Place::host, *bytes), [=](Trial& trial) { give(trial, Place::host, *bytes); }});
    if (const auto in_files = enough_below(Place::nvme)) ways.push_back(way_by_files(*in_files));
    return ways;
  }

  Way way_by_files(std::int64_t bytes) const {
    const bool files = !setup_.options.nvme_paths.empty();
    if (files && machines_have(bytes, &RankRoom::free_nvme_bytes))
      return {budget_option(Place::nvme, bytes), [=](Trial& trial) { give(trial, Place::nvme, bytes); }};
    const int ranks = setup_.ranks.ranks_on_node;
    const std::string text = size_at_least(bytes * ranks);
    const bool limited = std::ranges::any_of(
        rooms_, [&](const RankRoom& room) { return room.nvme_option > 0 && room.nvme_option < bytes; });
    return {
        fmt::format("--nvme-path DIR with {} free{}", text, limited ? " and " + budget_option(Place::nvme, bytes) : ""),
        [=](Trial& trial) {
          if (limited) give(trial, Place::nvme, bytes);
          trial.options.nvme_paths = {"DIR"};
          for (RankRoom& room : trial.rooms) {
            room.files = true;
            room.free_nvme_bytes = parse_size(text) / ranks;
          }
        }};
  }

  std::vector<Way> ways_for_device() const {
    std::vector<Way> ways;
    const TrainOptions& given = setup_.options;
    if (const std::int64_t bytes = whole_mebibytes(failed_.bytes[0]);
        machines_have(bytes, &RankRoom::device_bytes, &RankRoom::host_option))
      ways.push_back({budget_option(Place::device, bytes), [=](Trial& trial) { give(trial, Place::device, bytes); }});
    if (given.micro_batch > 1) {
      const std::int64_t accumulation = given.micro_batch * given.grad_accum;
      ways.push_back({fmt::format("--micro-batch 1 --grad-accum {}", accumulation), [=](Trial& trial) {
                        trial.options.micro_batch = 1;
                        trial.options.grad_accum = accumulation;
                      }});
    }
    if (auto tiles = fewest_tiles()) ways.push_back(std::move(*tiles));
    if (auto open = open_what_is_fixed()) ways.push_back(std::move(*open));
    return ways;
  }

  std::optional<Way> fewest_tiles() const {
    const TrainOptions& given = setup_.options;
    const std::int64_t most = given.products == Products::fp8 ? 0 : 16;  // these cannot be cut
    for (std::int64_t tiles = 2 * given.linear_tiles; tiles <= most; tiles *= 2) {
      TrainOptions cut = failed_.setup.options;
      cut.linear_tiles = tiles;
      const MemoryPlan least = plan_memory(failed_.setup.with(cut));
      if (least.bytes[0] <= budgets_[0])
        return Way{fmt::format("--tile-linear {}", tiles), [=](Trial& trial) { trial.options.linear_tiles = tiles; }};
    }
    return std::nullopt;
  }

  std::optional<Way> open_what_is_fixed() const {
    const OpenChoices open = setup_.options.choose;
    std::vector<std::string> fixed;
    if (!open.optimizer) fixed.emplace_back("--offload-optimizer");
    if (!open.params) fixed.emplace_back("--offload-param");
    if (!open.activations) fixed.emplace_back("--offload-activations");
    if (!open.prefetch) fixed.emplace_back("--prefetch");
    if (fixed.empty()) return std::nullopt;
    return Way{fmt::format("leave {} to be chosen too", fmt::join(fixed, ", ")), [=](Trial& trial) {
                 const TrainOptions defaults;
                 Placement& placement = trial.options.placement;
                 if (!open.optimizer) placement.optimizer = defaults.placement.optimizer;
                 if (!open.params) placement.params = defaults.placement.params;
                 if (!open.activations) placement.activations = defaults.placement.activations;
                 if (!open.prefetch) trial.options.prefetch_bytes = defaults.prefetch_bytes;
                 trial.options.choose = {.params = true, .optimizer = true, .activations = true, .prefetch = true};
               }};
  }

  std::optional<Way> half_the_sequence() const {
    const std::int64_t length = setup_.options.seq_len / 2;
    if (length < 1) return std::nullopt;
    return Way{fmt::format("--seq-len {}", length), [=](Trial& trial) { trial.options.seq_len = length; }};
  }

  const RunSetup& setup_;
  const std::vector<RankRoom>& rooms_;
  const FoundPlacement& failed_;
  PlaceBytes budgets_;
};

}  // namespace

std::string ways_out(const RunSetup& setup, const std::vector<RankRoom>& rooms, const FoundPlacement& failed) {
  return WaysOut(setup, rooms, failed).text();
}

}  // namespace zeepo
