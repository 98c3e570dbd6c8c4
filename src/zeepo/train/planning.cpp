#include "zeepo/train/planning.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/comm/wire_collectives.h"
#include "zeepo/train/ways_out.h"
#include "zeepo/zero/state_plan.h"

namespace zeepo {
namespace {

RunSetup as_rank(RunSetup setup, int rank) {
  setup.ranks.rank = rank;
  return setup;
}

void raise_to(PlaceBytes& bytes, const PlaceBytes& others) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::max(bytes[i], others[i]);
}

// The plan of the largest rank, with room for every other: fewer rows may leave larger gaps between tensors.
MemoryPlan plan_for_all(const RunSetup& setup) {
  RunSetup tried = as_largest(setup);
  MemoryPlan plan = plan_memory(tried);
  if (setup.balanced.rows.empty()) return plan;
  std::int64_t& own = tried.balanced.rows[static_cast<std::size_t>(tried.ranks.rank)];
  const std::int64_t most = own;
  for (const std::int64_t rows : std::set(setup.balanced.rows.begin(), setup.balanced.rows.end())) {
    if (rows == most) continue;
    own = rows;
    raise_to(plan.bytes, plan_memory(tried).bytes);
  }
  return plan;
}

// Whose messages take most memory, where nodes have unlike numbers of ranks: a rank alone on its node has all of its
// node's copy. Of a node's ranks the first meets most others.
int rank_with_most_messages(const RunSetup& setup) {
  const WireOptions& wire = setup.options.wire;
  if (!wire.coded() && !wire.node_copy) return 0;
  const NodeMap nodes = NodeMap::of(AbsentRanks(setup.ranks), wire.node_size);
  using Taken = std::pair<std::size_t, std::size_t>;
  std::map<std::size_t, std::pair<Taken, int>> by_size;
  for (int node = 0; node < nodes.nodes(); ++node) {
    const auto& ranks = nodes.ranks_of(node);
    if (by_size.contains(ranks.size())) continue;
    const WirePlan plan = wire_plan(nodes, ranks[0]);
    const bool coded = wire.reduce != WireType::same;
    by_size[ranks.size()] = {
        {wire.node_copy ? plan.gather.held.size() : 0, coded ? reduce_scratch_bytes(plan, wire.reduce, 1) : 0},
        ranks[0]};
  }
  std::pair<Taken, int> most = by_size.at(nodes.ranks_of(0).size());
  for (const auto& [size, taken] : by_size)
    if (taken.first > most.first) most = taken;
  return most.second;
}

// With buffers for the host's part of the step, while it is measured and afterwards.
bool has_room_to_probe(const RunSetup& setup, const MemoryPlan& memory, const std::vector<RankRoom>& rooms,
                       const PlaceBytes& budgets) {
  const std::int64_t needed = probe_bytes(step_work(setup.options));
  return memory.fits(budgets) &&
         std::ranges::all_of(rooms, [&](const RankRoom& room) { return room.free_host_bytes >= needed; });
}

// The levels of one knob, doubled as long as the budgets have room for the next one and it needs room: the memory is
// there when tuning chooses it, whether it does or not.
template <class Levels, class Modest>
void extend(RunPlan& plan, const PlaceBytes& budgets, Levels TuningRange::*knob, const Modest& modest) {
  constexpr int kMostTimes = 8;
  const auto first = (plan.setup.levels.*knob)[0];
  for (auto level = first * 2; level <= first * kMostTimes; level *= 2) {
    RunSetup deeper = plan.setup;
    (deeper.levels.*knob).push_back(level);
    const MemoryPlan memory = plan_for_all(deeper);
    const bool differs = !std::ranges::equal(memory.peak, plan.memory.peak, {}, &Usage::total, &Usage::total);
    if (!memory.fits(budgets) || !differs || !modest(memory)) return;
    plan.setup = std::move(deeper);
    plan.memory = memory;
  }
}

// Of the host's memory, buffers get a quarter at most.
void plan_tuning(RunPlan& plan, const PlaceBytes& budgets) {
  const TrainOptions& options = plan.setup.options;
  const EngineOptions engine = engine_options(plan.setup);
  TuningRange& levels = plan.setup.levels;
  levels.prefetch_bytes = {options.prefetch_bytes};
  levels.pieces_under_way = {engine.pieces_under_way};
  if (!plan.step_rates) {
    levels.host_shares = {engine.host_share};
  } else {
    levels.host_shares = {0};
    if (const double most = balanced_share(*plan.step_rates, step_work(options)); most > 0)
      levels.host_shares.push_back(most);
  }
  if (options.tune.prefetch && options.prefetch_bytes > 0)
    extend(plan, budgets, &TuningRange::prefetch_bytes, [](const MemoryPlan&) { return true; });
  if (options.tune.pieces && engine.step_below_on == StepSide::host)
    extend(plan, budgets, &TuningRange::pieces_under_way,
           [&](const MemoryPlan& deeper) { return deeper.peak[1][Kind::working] <= budgets[1] / 4; });
}

RunSetup with_buffers(RunSetup setup, std::int64_t host_room) {
  setup.host_room = host_room;
  return setup;
}

std::int64_t missing_bytes(const MemoryPlan& memory, const PlaceBytes& budgets) {
  std::int64_t missing = 0;
  for (std::size_t i = 0; i < budgets.size(); ++i) missing += std::max<std::int64_t>(0, memory.bytes[i] - budgets[i]);
  return missing;
}

// With the largest buffers that fit; where none do, with those that miss least.
RunSetup fit_buffers(const RunSetup& setup, const std::vector<RankRoom>& rooms) {
  RunSetup best = setup;
  const MemoryPlan memory = plan_for_all(setup);
  const PlaceBytes budgets = least_budgets(rooms, memory);
  std::int64_t least = missing_bytes(memory, budgets);
  for (const std::int64_t room : host_rooms(budgets[static_cast<std::size_t>(Place::host)])) {
    if (least == 0) break;
    if (room == setup.host_room) continue;
    RunSetup tried = with_buffers(setup, room);
    const MemoryPlan smaller = plan_for_all(tried);
    if (const std::int64_t missing = missing_bytes(smaller, least_budgets(rooms, smaller)); missing < least) {
      best = std::move(tried);
      least = missing;
    }
  }
  return best;
}

// The more of the optimizer's state can come up to the device ahead of its step, the better it hides behind the
// backward pass: the room that the plan leaves goes to it.
void fill_device(RunPlan& plan, const PlaceBytes& budgets) {
  const EngineOptions options = engine_options(plan.setup);
  if (options.step_below_on != StepSide::device || options.placement.optimizer.on_device()) return;
  const std::size_t piece =
      largest_slot(plan_states(plan_units(*plan.setup.model, options.blocks_per_unit), options,
                               {plan.setup.ranks.rank, plan.setup.ranks.ranks, plan.setup.ranks.alone()}));
  if (piece == 0) return;
  const std::int64_t room = budgets[0] - plan.memory.bytes[0];
  const std::int64_t more = room / static_cast<std::int64_t>(piece);
  if (more <= 0) return;
  const auto pieces = static_cast<int>(std::min<std::int64_t>(more, std::numeric_limits<int>::max() / 2));
  plan.setup.levels.pieces_under_way = {options.pieces_under_way + pieces};
  plan.memory = plan_memory(plan.setup);
}

}  // namespace

RunSetup as_largest(const RunSetup& setup) {
  RunSetup largest = as_rank(setup, rank_with_most_messages(setup));
  auto& rows = largest.balanced.rows;
  if (!rows.empty()) rows[static_cast<std::size_t>(largest.ranks.rank)] = std::ranges::max(rows);
  return largest;
}

std::vector<std::int64_t> host_rooms(std::int64_t host_bytes) {
  constexpr std::int64_t kMost = std::int64_t{2} << 30, kLeast = 64 << 10, kTimes = 4;  // beyond, nothing changes
  std::vector<std::int64_t> rooms{0};
  if (host_bytes < kMost)
    for (std::int64_t room = kMost; room > std::max(host_bytes, kLeast);) rooms.push_back(room /= kTimes);
  return rooms;
}

FoundPlacement search_placement(const RunSetup& given, const PlaceBytes& budgets, std::int64_t host_room) {
  const RunSetup setup = with_buffers(given, host_room);
  const PlacementSearch search{.given = setup.arrangement(),
                               .open = setup.options.choose,
                               .budgets = budgets,
                               .plan = [&](const Arrangement& tried) { return plan_for_all(setup.with(tried)).bytes; }};
  const PlacementSearch::Result result = search.run();
  return {setup.with(result.arrangement), result.bytes, result.fits};
}

FoundPlacement search_placement(const RunSetup& setup, const PlaceBytes& budgets) {
  const std::vector<std::int64_t> rooms = host_rooms(budgets[static_cast<std::size_t>(Place::host)]);
  FoundPlacement found = search_placement(setup, budgets, rooms[0]);
  for (std::size_t i = 1; i < rooms.size() && !found.fits; ++i) found = search_placement(setup, budgets, rooms[i]);
  return found;
}

void check_fits(const RunPlan& plan, const GpuPlace& place) {
  constexpr AdviceOfTiers kAdvice{
      "lower --micro-batch or --seq-len, try --activation-checkpointing or --tile-linear, or move states away with "
      "--placement auto, --offload-optimizer, --offload-param or --offload-activations",
      "move states on to files with --placement auto, --offload-optimizer nvme, --offload-param nvme or "
      "--offload-activations nvme, or raise --memory host=",
      "give --nvme-path a larger disk, or raise --memory nvme="};
  check_fits(plan.memory, plan.budgets, tier_options(plan.setup.options), place, "a step", kAdvice);
}

RunSetup choose_placement(const RunSetup& setup, const std::vector<RankRoom>& rooms) {
  if (!setup.options.choose.any()) return fit_buffers(setup, rooms);
  FoundPlacement found = search_placement(setup, least_to_fill(rooms));
  if (!found.fits) throw Error("train: --placement auto: {}", ways_out(setup, rooms, found));
  return std::move(found.setup);
}

RunSetup give_snapshots_room(const RunSetup& setup, const std::vector<RankRoom>& rooms) {
  const TrainOptions& options = setup.options;
  if (options.checkpoint_dir.empty() || options.checkpoint_every == 0 || options.checkpoint_bytes > 0) return setup;
  const MemoryPlan memory = plan_for_all(setup);
  const auto host = static_cast<std::size_t>(Place::host);
  const std::int64_t free = least_budgets(rooms, memory)[host] - memory.bytes[host];
  if (free <= 0) return setup;
  RunSetup roomy = setup;
  roomy.options.checkpoint_bytes = engine_options(setup).snapshot_bytes + free / 2;
  return roomy;
}

RunPlan plan_run(const RunSetup& setup, const std::vector<RankRoom>& rooms, const MeasureSteps& measure) {
  const bool chosen = setup.options.choose.any();  // a placement, for the budgets of all ranks
  const int rank = setup.ranks.rank;
  RunPlan plan{.setup = as_rank(setup, as_largest(setup).ranks.rank),
               .memory = plan_for_all(setup),
               .needed = {},
               .budgets = {},
               .step_rates = {}};
  const auto common = [&] { return chosen ? least_to_fill(rooms) : least_budgets(rooms, plan.memory); };
  if (tunes_host_share(plan.setup) && !has_room_to_probe(plan.setup, plan.memory, rooms, common())) {
    plan.setup.room_to_probe = false;
    plan.memory = plan_for_all(plan.setup);
  }
  if (measure && tunes_host_share(plan.setup)) plan.step_rates = measure(as_rank(plan.setup, rank));
  plan_tuning(plan, common());
  plan.needed = plan.memory.bytes;
  // From here on this rank's own.
  const bool differs = rank != plan.setup.ranks.rank || !setup.balanced.rows.empty();
  plan.setup.ranks.rank = rank;
  if (differs) plan.memory = plan_memory(plan.setup);
  const RankRoom& own = rooms.at(static_cast<std::size_t>(rank));
  const auto budgets = [&] { return chosen ? least_to_fill(rooms) : budgets_of(own, plan.memory); };
  fill_device(plan, budgets());
  raise_to(plan.needed, plan.memory.bytes);
  plan.budgets = budgets();
  return plan;
}

}  // namespace zeepo
