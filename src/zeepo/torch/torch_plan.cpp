#include "zeepo/torch/torch_plan.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/train/run_setup.h"
#include "zeepo/zero/engine.h"

namespace zeepo {
namespace {

// Of a GPU, what is left to zeepo's choice where nobody has said how much that is.
std::int64_t to_fill(const TrainOptions& options, std::int64_t free_bytes) {
  constexpr std::int64_t kPart = 3;
  return options.backend == Backend::cuda && options.device_bytes == 0 ? free_bytes / kPart : free_bytes;
}

void run_dry_step(Engine& engine, const Tensor& no_loss) {
  const std::size_t units = engine.units().units.size();
  for (std::int64_t m = 0; m < engine.plan().options.accumulation; ++m) {
    (void)engine.begin_micro_step();
    for (std::size_t u = 0; u < units; ++u) engine.use({u}, Visit::Direction::forward);
    engine.begin_backward(no_loss);
    for (std::size_t u = units; u-- > 0;) {
      engine.use({u}, Visit::Direction::backward);
      engine.reduce(u);
    }
    engine.end_micro_step();
  }
  (void)engine.step(0.0);
  engine.settle(Engine::Settled::weights);
}

void run_dry_pass(Engine& engine) {
  engine.begin_inference();
  for (std::size_t u = 0; u < engine.units().units.size(); ++u) engine.use({u}, Visit::Direction::forward);
  engine.end_inference(Engine::Then::another);
}

LowerTiers::Options lower_of(const TrainOptions& options) {
  LowerTiers::Options lower;
  if (options.placement.in_files()) lower.nvme_paths = options.nvme_paths;
  return lower;
}

TierOptions tiers_of(const TrainOptions& options) {
  TierOptions tiers = tier_options(options);
  tiers.command = "init";
  return tiers;
}

// The room that the plan leaves goes to the ring that the optimizer's state passes through: what is there before the
// step is taken need not be waited for.
void fill_device(const UnitPlan& units, const RankShape& ranks, const PlaceBytes& budgets, TorchRun& run) {
  EngineOptions& engine = run.engine;
  if (engine.step_below_on != StepSide::device || engine.placement.optimizer.on_device()) return;
  const StatePlan states = plan_states(units, engine, {ranks.rank, ranks.ranks, ranks.alone()});
  const auto slot = static_cast<std::int64_t>(largest_slot(states));
  if (slot == 0) return;
  const std::int64_t more = to_fill(run.options, std::max<std::int64_t>(0, budgets[0] - run.memory.bytes[0])) / slot;
  engine.pieces_under_way += static_cast<int>(std::min<std::int64_t>(more, std::ssize(states.deferred)));
  run.memory = plan_torch_memory(units, engine, ranks, lower_of(run.options), run.options.backend);
}

}  // namespace

UnitPlan with_own_visits(UnitPlan units) {
  units.visits.clear();
  for (std::size_t u = 0; u < units.units.size(); ++u) units.visits.push_back({{u}, units.units[u].name});
  return units;
}

MemoryPlan plan_torch_memory(const UnitPlan& units, const EngineOptions& options, const RankShape& ranks,
                             const LowerTiers::Options& lower, Backend backend) {
  AbsentRanks absent(ranks);
  Session session = Session::dry(absent, lower, backend);
  {
    Engine engine(with_own_visits(units), session.communicator(), options);
    engine.load([](const WeightSlice&, std::int64_t, std::span<float>) {});
    if (options.use == Use::train) {
      const Tensor no_loss({1}, DType::f32, Kind::working);
      for (int step = 0; step < 2; ++step) run_dry_step(engine, no_loss);
    } else {
      for (int pass = 0; pass < 2; ++pass) run_dry_pass(engine);
    }
    engine.settled_io().take_room_to_read();
  }
  return used_by(session);
}

TorchRun plan_torch_run(const UnitPlan& given, const TrainOptions& options, const EngineOptions& engine,
                        const RankShape& ranks, const PlaceBytes& budgets) {
  const UnitPlan units = with_own_visits(given);
  TorchRun run{options, engine, {}};
  const auto with = [&](const Arrangement& tried) {
    TorchRun other{options, engine, {}};
    other.options.placement = other.engine.placement = tried.placement;
    other.options.prefetch_bytes = other.engine.prefetch_bytes = tried.prefetch_bytes;
    other.memory = plan_torch_memory(units, other.engine, ranks, lower_of(other.options), options.backend);
    return other;
  };
  const Arrangement as_given{options.placement, false, options.prefetch_bytes};
  if (options.choose.any()) {
    OpenChoices open = options.choose;
    open.activations = false;  // PyTorch's
    if (engine.use == Use::infer) open.optimizer = false;
    PlaceBytes filled = budgets;
    filled[0] = to_fill(options, budgets[0]);
    const PlacementSearch search{
        .given = as_given, .open = open, .budgets = filled, .plan = [&](const Arrangement& tried) {
          return with(tried).memory.bytes;
        }};
    run = with(search.run().arrangement);
  } else {
    run = with(as_given);
  }
  constexpr AdviceOfTiers kAdvice{
      "raise memory={\"device\": ...}, or move states away by offload_optimizer, offload_param or placement=\"auto\"",
      "raise memory={\"host\": ...}, or move states on to files by offload_optimizer=\"nvme\" or "
      "offload_param=\"nvme\"",
      "give nvme_path a larger disk, or raise memory={\"nvme\": ...}"};
  check_fits(run.memory, budgets, tiers_of(run.options), {}, "a step", kAdvice);
  fill_device(units, ranks, budgets, run);
  return run;
}

PlaceBytes torch_budgets(const TrainOptions& options, Communicator& ranks, const GpuPlace& place) {
  const std::vector<RankRoom> rooms = gather_rooms(ranks, room_of(tiers_of(options), place, ranks.local_size()));
  PlaceBytes budgets = least_to_fill(rooms);
  if (options.placement.in_files() && budgets[2] == 0)
    budgets[2] = std::int64_t{1} << 60;  // who makes the files checks
  return budgets;
}

}  // namespace zeepo
