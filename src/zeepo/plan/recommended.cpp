#include "zeepo/plan/recommended.h"

#include <algorithm>
#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/plan/plan_text.h"
#include "zeepo/train/option_values.h"
#include "zeepo/train/ways_out.h"
#include "zeepo/zero/state_plan.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kFasterBy = 1.05;  // or else the one that needs less
constexpr int kLongRun = 1000;      // steps: enough for what is tuned while it runs

RunSetup without_choice(RunSetup setup) {
  setup.options.choose = {};
  return setup;
}

// A plan counts on files whose directory has no name yet.
PlaceBytes to_choose_within(const std::vector<RankRoom>& rooms) {
  PlaceBytes budgets = least_to_fill(rooms);
  if (!rooms.front().files) budgets[static_cast<std::size_t>(Place::nvme)] = std::numeric_limits<std::int64_t>::max();
  return budgets;
}

// Options for what the arrangement has and the defaults have not.
std::vector<std::pair<std::string, std::string>> placement_options(const RunSetup& setup) {
  const Arrangement arrangement = setup.arrangement();
  const Placement& placement = arrangement.placement;
  std::vector<std::pair<std::string, std::string>> options;
  if (!placement.optimizer.on_device()) options.emplace_back("--offload-optimizer", text_of(placement.optimizer));
  if (!placement.params.on_device()) options.emplace_back("--offload-param", text_of(placement.params));
  if (placement.activations != Place::device)
    options.emplace_back("--offload-activations", name_of(placement.activations));
  if (arrangement.activation_checkpointing) options.emplace_back("--activation-checkpointing", "true");
  if (arrangement.prefetch_bytes != EngineOptions{}.prefetch_bytes)
    options.emplace_back("--prefetch", text_of_size(arrangement.prefetch_bytes));
  if (placement.in_files())
    options.emplace_back("--nvme-path", setup.options.nvme_paths.empty() ? "DIR" : text_of(setup.options.nvme_paths));
  return options;
}

void add_flag(std::string& command, const std::string& name, const std::string& text) {
  const TrainOption* option = find_option(name);
  if (option != nullptr && option->is_flag)
    command += text == "true" ? " " + name : "";
  else
    command += fmt::format(" {} {}", name, quoted(text));
}

// DeepSpeed's block has one place and a ratio; nothing where the shares have more.
std::optional<Json> offload_block(const Shares& shares, const TrainOptions& options) {
  if (shares.host > 0 && shares.nvme > 0) return std::nullopt;
  const double ratio = shares.host + shares.nvme;
  Json block{{"device", shares.nvme > 0 ? "nvme" : "cpu"}};
  if (ratio < 1) block["ratio"] = ratio;
  if (shares.nvme > 0) {
    if (options.nvme_paths.size() > 1) return std::nullopt;
    block["nvme_path"] = options.nvme_paths.empty() ? "DIR" : options.nvme_paths.front().string();
  }
  return block;
}

// Of the decimals that a person would write: 0.95, not 0.949999988.
double shortest(float value) { return std::stod(fmt::format("{}", value)); }

Json optimizer_block(const TrainOptions& options) {
  const OptimizerOptions& optimizer = options.optimizer;
  Json params{{"lr", options.schedule.lr}};
  if (optimizer.type == OptimizerType::sgd) {
    params["momentum"] = shortest(optimizer.momentum);
  } else {
    params["betas"] = {shortest(optimizer.beta1), shortest(optimizer.beta2)};
    params["eps"] = shortest(optimizer.eps);
    if (optimizer.type == OptimizerType::adam) params["adam_w_mode"] = false;
  }
  params["weight_decay"] = shortest(optimizer.weight_decay);
  const char* type = optimizer.type == OptimizerType::sgd    ? "SGD"
                     : optimizer.type == OptimizerType::adam ? "Adam"
                                                             : "AdamW";
  return {{"type", type}, {"params", std::move(params)}};
}

}  // namespace

namespace {

Recommended least_to_move(const RunSetup& setup, const RankRoom& room, const PlanMachine& machine) {
  const std::vector<RankRoom> rooms{room};
  const PlaceBytes budgets = budgets_to_fill(room);
  if (setup.ranks.ranks > 1) {
    const RunSetup two = choose_placement(without_choice(all_open(setup, 2)), rooms);
    if (plan_memory(two).fits(budgets)) return as_run(two, rooms, machine);
  }
  const RunSetup open = all_open(setup, setup.ranks.ranks > 1 ? 3 : 0);
  const FoundPlacement found = search_placement(open, budgets);
  if (found.fits) return as_run(found.setup, rooms, machine);
  const RunSetup failed = without_choice(found.setup);
  return {.setup = failed,
          .tuned = failed,
          .rooms = rooms,
          .memory = plan_memory(failed),
          .budgets = budgets,
          .fits = false,
          .ways_out = ways_out(open, rooms, found),
          .time = std::nullopt};
}

}  // namespace

Recommended as_run(const RunSetup& decided, const std::vector<RankRoom>& rooms, const PlanMachine& machine) {
  RunSetup setup = without_choice(decided);
  setup.options.steps = kLongRun;
  setup.options.tune = {
      .prefetch = setup.options.prefetch_bytes == EngineOptions{}.prefetch_bytes, .pieces = true, .host_share = true};
  const RunPlan plan = plan_run(setup, rooms);
  const bool fits = plan.memory.fits(plan.budgets);
  return {.setup = without_choice(decided),
          .tuned = plan.setup,
          .rooms = rooms,
          .memory = plan.memory,
          .budgets = plan.budgets,
          .fits = fits,
          .ways_out = {},
          .time = fits ? step_time(plan.setup, machine) : std::nullopt};
}

std::optional<FasterPlan> faster_than(const Recommended& least, const RunSetup& setup,
                                      const std::vector<RankRoom>& rooms, const PlanMachine& machine,
                                      const std::vector<ExactPlan>& plans) {
  const PlaceBytes budgets = to_choose_within(rooms);
  double limit = least.time->seconds / kFasterBy;
  std::optional<FasterPlan> best;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const ExactPlan& plan = plans[i];
    if (!plan.fits() || !plan.memory.fits(budgets) || !plan.time || plan.time->seconds >= limit) continue;
    Recommended faster = as_run(setup_of(plan, setup), rooms, machine);
    // Tuning may take what others use: its own time counts.
    if (!faster.time || faster.time->seconds >= limit) continue;
    limit = faster.time->seconds;
    best = {i, std::move(faster)};
  }
  return best;
}

RunSetup with_units_ahead(const RunSetup& setup) {
  const RankShape& ranks = setup.ranks;
  const StatePlan plan = plan_states(plan_units(*setup.model, setup.options.blocks_per_unit), engine_options(setup),
                                     {ranks.rank, ranks.ranks, ranks.alone()});
  TrainOptions options = setup.options;
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit)
    if (!plan.units[unit].params_whole)
      options.prefetch_bytes = std::max(options.prefetch_bytes, plan.fetched_bytes(unit));
  return setup.with(std::move(options));
}

std::optional<Recommended> fetched_ahead(const Recommended& run, const PlanMachine& machine) {
  const TrainOptions& options = run.setup.options;
  const bool gathers = options.stage == 3 && run.setup.ranks.ranks > 1;
  if (!run.time || !(gathers || !options.placement.params.on_device())) return std::nullopt;
  if (options.prefetch_bytes != EngineOptions{}.prefetch_bytes) return std::nullopt;  // asked for, or all that fits
  const RunSetup ahead = with_units_ahead(run.setup);
  if (ahead.options.prefetch_bytes == options.prefetch_bytes) return std::nullopt;
  Recommended tried = as_run(ahead, run.rooms, machine);
  if (!tried.time || tried.time->seconds >= run.time->seconds / kFasterBy) return std::nullopt;
  return tried;
}

Recommended recommend(const RunSetup& setup, const RankRoom& room, const PlanMachine& machine,
                      const std::vector<ExactPlan>& plans) {
  Recommended best = least_to_move(setup, room, machine);
  if (!best.fits || !best.time) return best;
  if (auto faster = faster_than(best, setup, {room}, machine, plans)) best = std::move(faster->run);
  if (auto ahead = fetched_ahead(best, machine)) best = std::move(*ahead);
  return best;
}

std::string command_of(const Recommended& recommended, const OptionTexts& given) {
  const RunSetup& setup = recommended.setup;
  std::string command = setup.ranks.ranks > 1 ? fmt::format("mpirun -n {} ", setup.ranks.ranks) : "";
  const std::string model = setup.options.model.empty() ? "DIR" : quoted(setup.options.model.string());
  command += fmt::format("zeepo train --model {} --data FILE", model);
  if (!has_weights(setup.options.model)) command += " --from-scratch";
  command += fmt::format(" --stage {}", setup.options.stage);
  const auto placed = placement_options(setup);
  for (const TrainOption& option : option_table()) {
    const auto found = given.find(option.name);
    const bool again = std::ranges::any_of(placed, [&](const auto& other) { return other.first == option.name; });
    if (found != given.end() && !again && option.name != "--model") add_flag(command, found->first, found->second);
  }
  for (const auto& [name, text] : placed) add_flag(command, name, text);
  return command;
}

DeepSpeedSettings deepspeed_of(const RunSetup& setup, const OptionTexts& given) {
  const TrainOptions& options = setup.options;
  const Arrangement arrangement = setup.arrangement();
  DeepSpeedSettings settings;
  for (const TrainOption& option : option_table()) {
    const bool has_key = !option.deepspeed.empty() || !option.deepspeed_also.empty();
    const auto found = given.find(option.name);
    if (found != given.end() && !has_key && option.name != "--model")
      add_flag(settings.flags_beside, option.name, found->second);
  }
  Json& json = settings.json;
  json["train_micro_batch_size_per_gpu"] = options.micro_batch;
  json["gradient_accumulation_steps"] = options.grad_accum;
  json["gradient_clipping"] = shortest(options.clip);
  json["optimizer"] = optimizer_block(options);
  const bool half = options.dtype == DType::f16;
  json[half ? "fp16" : "bf16"] = {{"enabled", options.dtype != DType::f32}};
  Json zero{{"stage", options.stage}};
  bool path_in_json = false;
  const auto offload = [&](const char* key, const char* flag, const Shares& shares) {
    if (shares.on_device()) return;
    if (auto block = offload_block(shares, options)) {
      path_in_json = path_in_json || block->contains("nvme_path");
      zero[key] = std::move(*block);
    } else {
      add_flag(settings.flags_beside, flag, text_of(shares));
    }
  };
  offload("offload_optimizer", "--offload-optimizer", arrangement.placement.optimizer);
  offload("offload_param", "--offload-param", arrangement.placement.params);
  if (arrangement.prefetch_bytes != EngineOptions{}.prefetch_bytes)
    zero["stage3_prefetch_bucket_size"] =
        arrangement.prefetch_bytes / static_cast<std::int64_t>(size_of(options.dtype));
  json["zero_optimization"] = std::move(zero);
  if (arrangement.placement.activations == Place::host)
    json["activation_checkpointing"] = {{"cpu_checkpointing", true}};
  else if (arrangement.activation_checkpointing)
    json["activation_checkpointing"] = {{"number_checkpoints", setup.config.layers}};
  if (arrangement.placement.activations == Place::nvme)
    add_flag(settings.flags_beside, "--offload-activations", "nvme");
  if (arrangement.placement.in_files() && !path_in_json)
    add_flag(settings.flags_beside, "--nvme-path", options.nvme_paths.empty() ? "DIR" : text_of(options.nvme_paths));
  if (!settings.flags_beside.empty()) settings.flags_beside.erase(0, 1);
  return settings;
}

}  // namespace zeepo
