#include "zeepo/budget/budgets.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <sstream>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/base/size.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

// Of one rank, in all directories together.
std::int64_t free_in_files(const TierOptions& options, int ranks_on_node) {
  if (options.nvme_paths.empty()) return 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& path : options.nvme_paths) {
    std::error_code code;
    const auto space = std::filesystem::space(path, code);
    if (code && options.nvme_bytes > 0) return options.nvme_bytes;  // what opens the files will say what is wrong
    if (code)
      throw Error("{}: --nvme-path {}: cannot tell how much is free: {}", options.command, path.string(),
                  code.message());
    least = std::min(least, static_cast<std::int64_t>(space.available));
  }
  // Striped evenly; directories of one file system share its room.
  const std::int64_t striped = least * static_cast<std::int64_t>(options.nvme_paths.size());
  return std::min(striped, free_disk_bytes(options.nvme_paths)) / ranks_on_node;
}

// Of a GPU that other ranks may share: what was free before any rank took some.
std::int64_t device_bytes(const TierOptions& options, const GpuPlace& place, int ranks_on_node) {
  if (options.backend == Backend::cuda) return gpu_budget(place.free_bytes);
  return device_budget(options.backend, place.gpu, 0, ranks_on_node);
}

std::int64_t option_or(std::int64_t option, std::int64_t bytes) { return option > 0 ? option : bytes; }

template <class Budgets>
PlaceBytes least_of(const std::vector<RankRoom>& rooms, const Budgets& budgets) {
  PlaceBytes least;
  least.fill(std::numeric_limits<std::int64_t>::max());
  for (const RankRoom& room : rooms)
    std::ranges::transform(least, budgets(room), least.begin(), [](auto a, auto b) { return std::min(a, b); });
  return least;
}

// Where the budget is what was free of a GPU, others may hold the rest.
std::string what_is_free(const TierOptions& options, const GpuPlace& place, Place tier) {
  if (tier != Place::device || options.backend != Backend::cuda || options.device_bytes > 0) return {};
  return fmt::format(" ({} of GPU {}'s {} were free{}; nvidia-smi shows what else runs on it)",
                     format_size(static_cast<std::int64_t>(place.free_bytes) * place.ranks), place.gpu,
                     format_size(static_cast<std::int64_t>(place.all_bytes)),
                     place.ranks > 1 ? fmt::format(" for {} ranks", place.ranks) : "");
}

// Where the device's memory is the host's, and one of both has what the other leaves.
std::string what_is_shared(const TierOptions& options, const PlaceBytes& budgets, Place tier) {
  const bool both_given = options.device_bytes > 0 && options.host_bytes > 0;
  if (options.backend != Backend::cpu || tier == Place::nvme || both_given) return {};
  return fmt::format(" (on the CPU device and host share {})", format_size(budgets[0] + budgets[1]));
}

}  // namespace

RankRoom room_of(const TierOptions& options, const GpuPlace& place, int ranks_on_node) {
  return {.device_bytes = device_bytes(options, place, ranks_on_node),
          .host_bytes = usable_memory_bytes() / ranks_on_node,
          .free_host_bytes = free_memory_bytes() / ranks_on_node,
          .free_nvme_bytes = options.fills_files ? free_in_files(options, ranks_on_node) : 0,
          .device_option = options.device_bytes,
          .host_option = options.host_bytes,
          .nvme_option = options.nvme_bytes,
          .files = !options.nvme_paths.empty(),
          .one_memory = options.backend == Backend::cpu};
}

std::vector<RankRoom> gather_rooms(Communicator& communicator, const RankRoom& own) {
  const auto text = fmt::format("{} {} {} {} {} {} {} {} {}", own.device_bytes, own.host_bytes, own.free_host_bytes,
                                own.free_nvme_bytes, own.device_option, own.host_option, own.nvme_option,
                                static_cast<int>(own.files), static_cast<int>(own.one_memory));
  std::vector<RankRoom> rooms;
  for (const auto& theirs : gather_texts(communicator, text)) {
    std::istringstream numbers(theirs);
    RankRoom& room = rooms.emplace_back();
    numbers >> room.device_bytes >> room.host_bytes >> room.free_host_bytes >> room.free_nvme_bytes >>
        room.device_option >> room.host_option >> room.nvme_option >> room.files >> room.one_memory;
  }
  return rooms;
}

PlaceBytes budgets_of(const RankRoom& room, const MemoryPlan& plan) {
  const std::int64_t nvme = option_or(room.nvme_option, plan.bytes[static_cast<std::size_t>(Place::nvme)]);
  if (room.one_memory) {
    const auto [device, host] =
        share_memory(room.host_bytes, {room.device_option, room.host_option}, {plan.bytes[0], plan.bytes[1]});
    return {device, host, nvme};
  }
  return {option_or(room.device_option, room.device_bytes), option_or(room.host_option, room.host_bytes), nvme};
}

PlaceBytes budgets_to_fill(const RankRoom& room) {
  std::int64_t device = option_or(room.device_option, room.device_bytes);
  std::int64_t host = room.host_option;
  if (room.one_memory && room.device_option == 0) {
    const SharedBytes shared = share_memory(room.device_bytes, {0, host});
    device = shared.device;
    host = shared.host;
  } else if (host == 0) {
    host = room.free_host_bytes - room.free_host_bytes / 10;  // for the program itself, and others
    if (room.one_memory) host = std::max<std::int64_t>(0, host - device);
  }
  const std::int64_t nvme = room.files ? option_or(room.nvme_option, room.free_nvme_bytes) : 0;
  return {device, host, nvme};
}

PlaceBytes least_budgets(const std::vector<RankRoom>& rooms, const MemoryPlan& plan) {
  return least_of(rooms, [&](const RankRoom& room) { return budgets_of(room, plan); });
}

PlaceBytes least_to_fill(const std::vector<RankRoom>& rooms) { return least_of(rooms, budgets_to_fill); }

void check_fits(const MemoryPlan& plan, const PlaceBytes& budgets, const TierOptions& options, const GpuPlace& place,
                const char* work, const AdviceOfTiers& advice) {
  for (const Place tier : kPlaces) {
    const auto i = static_cast<std::size_t>(tier);
    if (plan.bytes[i] <= budgets[i]) continue;
    throw Error("{}: {} needs {} of {} memory ({}), {} more than the budget of {}{}; {}", options.command, work,
                format_size(plan.bytes[i]), name_of(tier), describe(plan.peak[i]),
                format_size(plan.bytes[i] - budgets[i]), format_size(budgets[i]),
                what_is_free(options, place, tier) + what_is_shared(options, budgets, tier), advice[i]);
  }
}

}  // namespace zeepo
