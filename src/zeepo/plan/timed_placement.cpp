#include "zeepo/plan/timed_placement.h"

#include "zeepo/base/error.h"
#include "zeepo/base/thread_pool.h"
#include "zeepo/plan/plan_text.h"
#include "zeepo/plan/recommended.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

// Which of the usual placements is better than the one that bytes alone lead to, if any; and what is said of it.
struct Decided {
  std::optional<std::size_t> usual;
  bool units_ahead = false;  // with a --prefetch that takes the largest unit
  PlacementChoice told;      // all but the placement
};

Decided decide(const PlanMachine& known, const RunSetup& asked, const RunSetup& by_bytes,
               const std::vector<RankRoom>& rooms) {
  Decided decided{.usual = {}, .told = {.setup = by_bytes}};
  PlacementChoice& told = decided.told;
  if (!known.rates) {
    const int ranks = asked.ranks.ranks;
    told.why = fmt::format("the fastest tiers first; {}zeepo probe would let times decide",
                           ranks > 1 ? fmt::format("mpirun -n {} ", ranks) : "");
    return decided;
  }
  told.probe_date = known.date;
  PlanMachine machine = known;
  machine.has_files = known.has_files && rooms.front().files;
  const Recommended least = as_run(as_largest(by_bytes), rooms, machine);
  if (!least.time) {
    told.why = fmt::format("the fastest tiers first; {} has not measured all that a step uses", known.source);
    return decided;
  }
  const RunSetup largest = as_largest(asked);
  const auto faster = faster_than(least, largest, rooms, machine, usual_plans(largest, rooms, machine));
  const Recommended& found = faster ? faster->run : least;
  const auto ahead = asked.options.choose.prefetch ? fetched_ahead(found, machine) : std::nullopt;
  told.step_seconds = (ahead ? *ahead : found).time->seconds;
  if (!faster && !ahead) {
    told.why = fmt::format(
        "the fastest tiers first; a step is predicted to take {}, none of the usual "
        "placements 5% less; {}",
        short_seconds(*told.step_seconds), known.source);
    return decided;
  }
  if (faster) decided.usual = faster->usual;
  decided.units_ahead = ahead.has_value();
  told.by = PlacementChoice::By::time;
  told.why = fmt::format("a step is predicted to take {}, and {} with {}; {}", short_seconds(*told.step_seconds),
                         short_seconds(least.time->seconds), flags_of(by_bytes.arrangement()), known.source);
  return decided;
}

PlanMachine probed_for(const RunSetup& setup) {
  const int threads = choose_threads(setup.options.threads, setup.ranks.ranks_on_node);
  return probed_machine(setup.options.backend, setup.ranks.ranks, threads);
}

}  // namespace

PlacementChoice placement_by_probe(const RunSetup& setup, const std::vector<RankRoom>& rooms, Communicator& ranks) {
  const bool decides = ranks.rank() == 0 && setup.options.choose.any();
  return placement_on(decides ? probed_for(setup) : PlanMachine{}, setup, rooms, ranks);
}

PlacementChoice placement_on(const PlanMachine& machine, const RunSetup& setup, const std::vector<RankRoom>& rooms,
                             Communicator& ranks) {
  PlacementChoice choice = placement_by_bytes(setup, rooms, ranks);
  if (!setup.options.choose.any()) return choice;
  std::int32_t usual = 0, units_ahead = 0;  // usual: from 1 on; 0: none
  if (ranks.rank() == 0) {
    Decided decided = decide(machine, setup, choice.setup, rooms);
    choice = std::move(decided.told);
    if (decided.usual) usual = static_cast<std::int32_t>(*decided.usual) + 1;
    units_ahead = decided.units_ahead ? 1 : 0;
  }
  usual = largest_over_ranks(ranks, usual);
  units_ahead = largest_over_ranks(ranks, units_ahead);
  if (usual > 0) choice.setup = arranged(setup, usual_placements().at(static_cast<std::size_t>(usual - 1)));
  if (units_ahead > 0) choice.setup = with_units_ahead(choice.setup);
  return choice;
}

}  // namespace zeepo
