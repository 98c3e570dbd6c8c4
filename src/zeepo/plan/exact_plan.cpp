#include "zeepo/plan/exact_plan.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/device/devices.h"
#include "zeepo/model/config_sizes.h"
#include "zeepo/nn/module.h"
#include "zeepo/plan/count.h"
#include "zeepo/zero/state_layout.h"

namespace zeepo {
namespace {

constexpr int kMostRanks = 1 << 20;

// A plan opens no file: where files are planned for and no directory is named, this stands for one.
void name_some_directory(TrainOptions& options) {
  if (options.nvme_paths.empty()) options.nvme_paths = {"DIR"};
}

std::int64_t bytes_of(const MemoryPlan& memory, Kind kind) {
  std::int64_t bytes = 0;
  for (const Usage& peak : memory.peak) bytes += peak[kind];
  return bytes;
}

DType grad_type(const TrainOptions& options) { return options.grad_accum > 1 ? DType::f32 : options.dtype; }

StateLayout layout_of(const TrainOptions& options) {
  return {.dtype = options.dtype,
          .holds_param = false,
          .moments = state_count(options.optimizer),
          .moment_type = options.optimizer.moments};
}

}  // namespace

RunSetup exact_setup(const ExactQuestion& question) {
  if (question.ranks < 1 || question.ranks > kMostRanks)
    throw UsageError("plan: --ranks {}: must be from 1 to {} with --model", question.ranks, kMostRanks);
  TrainOptions options = question.options;
  options.stage = 0;
  options.placement = {};
  options.choose = {};
  options.tune = {};
  // GPUs meet by NCCL.
  const bool on_device = options.backend == Backend::cuda && question.ranks > 1;
  const RankShape ranks{.rank = 0,
                        .ranks = question.ranks,
                        .ranks_on_node = std::clamp(question.ranks_on_node, 1, question.ranks),
                        .meet = on_device ? RankShape::Meet::on_device : RankShape::Meet::in_host_memory};
  if (question.shape) return make_setup(std::move(options), ranks, *question.shape);
  return make_setup(std::move(options), ranks);
}

ModelConfig config_of(const TransformerShape& shape, std::int64_t vocab, std::int64_t seq_len) {
  constexpr std::int64_t kVocab = 50257, kPositions = 1024;
  check(shape);
  ModelConfig config;
  config.architecture = Architecture::gpt2;
  config.vocab = vocab > 0 ? vocab : kVocab;
  config.hidden = shape.hidden;
  config.intermediate = checked_product("the width of an MLP", {4, shape.hidden});
  config.layers = shape.layers;
  config.heads = config.kv_heads = shape.heads;
  config.head_dim = shape.hidden / shape.heads;
  config.max_positions = std::max(seq_len, kPositions);
  config.activation = Activation::gelu_tanh;
  config.qkv_bias = config.output_bias = config.mlp_bias = config.tied_head = true;
  try {
    check(config, "plan", {"--layers", "--hidden", "--heads", "--vocab", "--seq-len"});
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
  config.windows.assign(static_cast<std::size_t>(shape.layers), 0);
  return config;
}

RankRoom exact_room(const RunSetup& setup) { return exact_room(setup.options, setup.ranks.ranks_on_node); }

RankRoom exact_room(const TrainOptions& of_tiers, int ranks_on_node) {
  TierOptions options = tier_options(of_tiers);
  options.command = "plan";
  options.fills_files = !options.nvme_paths.empty();
  const bool no_gpu = options.backend == Backend::cuda && cuda_devices() == 0;
  if (no_gpu && options.device_bytes == 0)
    throw UsageError("plan: --device cuda: this machine has no GPU to ask; say what one has: --memory device=80GB");
  GpuPlace place;
  if (options.backend == Backend::cuda && !no_gpu) place = find_gpu(alone());
  return room_of(options, place, ranks_on_node);
}

const std::vector<UsualPlacement>& usual_placements() {
  static const std::vector<UsualPlacement> all{
      {"resident", {}, false},
      {"recompute activations", {}, true},
      {"optimizer host", {.params = {}, .optimizer = {.host = 1}}, false},
      {"optimizer nvme", {.params = {}, .optimizer = {.nvme = 1}}, false},
      {"optimizer+params host", {.params = {.host = 1}, .optimizer = {.host = 1}}, true},
      {"params host, opt. nvme", {.params = {.host = 1}, .optimizer = {.nvme = 1}}, true},
      {"all nvme", {.params = {.nvme = 1}, .optimizer = {.nvme = 1}, .activations = Place::nvme}, true}};
  return all;
}

RunSetup arranged(const RunSetup& setup, const UsualPlacement& usual) {
  TrainOptions options = setup.options;
  if (options.choose.params) options.placement.params = usual.placement.params;
  if (options.choose.optimizer) options.placement.optimizer = usual.placement.optimizer;
  if (options.choose.activations) options.placement.activations = usual.placement.activations;
  options.activation_checkpointing = options.activation_checkpointing || usual.checkpointing;
  if (options.placement.in_files()) name_some_directory(options);
  return setup.with(std::move(options));
}

namespace {

ExactPlan exact_plan(const RunSetup& tried, const UsualPlacement& usual, const std::vector<RankRoom>& rooms,
                     const PlanMachine& machine) {
  ExactPlan plan{.stage = tried.options.stage,
                 .name = usual.name,
                 .arrangement = tried.arrangement(),
                 .memory = plan_memory(tried),
                 .budgets = {},
                 .missing = {}};
  plan.budgets = budgets_on(machine, least_budgets(rooms, plan.memory));
  plan.missing = missing_of(plan.memory.bytes, plan.budgets);
  if (!machine.rates) return plan;
  // With what is free on the device for state that comes ahead of its step, as a run has it.
  plan.time = step_time(plan.fits() ? plan_run(tried, rooms).setup : tried, machine);
  return plan;
}

}  // namespace

std::vector<ExactPlan> usual_plans(const RunSetup& setup, const std::vector<RankRoom>& rooms,
                                   const PlanMachine& machine) {
  std::vector<ExactPlan> plans;
  for (const UsualPlacement& usual : usual_placements()) {
    RunSetup tried = arranged(setup, usual);
    tried.options.choose = {};
    plans.push_back(exact_plan(tried, usual, rooms, machine));
  }
  return plans;
}

std::vector<ExactPlan> exact_plans(const RunSetup& setup, const RankRoom& room, const PlanMachine& machine) {
  std::vector<ExactPlan> plans;
  for (int stage = 0; stage < kZeroStages; ++stage) {
    const bool again = setup.ranks.ranks == 1 && stage > 0;  // a rank alone shards nothing
    auto of_stage = again ? std::vector<ExactPlan>(plans.begin(), plans.begin() + std::ssize(usual_placements()))
                          : usual_plans(all_open(setup, stage), {room}, machine);
    for (ExactPlan& plan : of_stage) {
      plan.stage = stage;
      plans.push_back(std::move(plan));
    }
  }
  return plans;
}

RunSetup all_open(const RunSetup& setup, int stage) {
  TrainOptions options = setup.options;
  options.stage = stage;
  options.choose = {.params = true, .optimizer = true, .activations = true, .prefetch = true};
  return setup.with(std::move(options));
}

RunSetup setup_of(const ExactPlan& plan, const RunSetup& setup) {
  TrainOptions options = setup.options;
  options.stage = plan.stage;
  if (plan.arrangement.placement.in_files()) name_some_directory(options);
  return setup.with(std::move(options)).with(plan.arrangement);
}

std::int64_t parameter_count(const RunSetup& setup) {
  std::int64_t count = 0;
  for (const auto& named : named_parameters(*setup.model)) count += named.parameter->elements();
  return count;
}

KeptBytes kept_bytes(const TrainOptions& options) {
  constexpr std::int64_t kMany = 1 << 20;  // so that what is kept for a block of them counts in parts
  return {.params = static_cast<double>(size_of(options.dtype)),
          .grads = static_cast<double>(size_of(grad_type(options))),
          .optimizer = static_cast<double>(layout_of(options).bytes(kMany)) / kMany};
}

TextbookDifference difference_of(const ExactPlan& plan, const RunSetup& setup, const StateBytes& textbook) {
  const TrainOptions& options = setup.options;
  const std::int64_t params = parameter_count(setup), share = divide_up(params, setup.ranks.ranks);
  const auto kept = [&](int sharded_from) { return plan.stage >= sharded_from ? share : params; };
  const StateLayout layout = layout_of(options);
  // From stage 1 on each rank keeps the sums over several micro-batches of its share alone.
  const bool summed = options.grad_accum > 1;
  const auto element = static_cast<std::int64_t>(size_of(options.dtype));
  const auto grad = static_cast<std::int64_t>(size_of(grad_type(options)));
  const std::int64_t unpadded =
      kept(3) * element + kept(summed ? 1 : 2) * grad + static_cast<std::int64_t>(layout.bytes(kept(1)));
  TextbookDifference difference;
  difference.textbook = textbook.total;
  std::int64_t states = 0, all_kinds = 0;
  for (const Kind kind : {Kind::params, Kind::grads, Kind::optimizer}) states += bytes_of(plan.memory, kind);
  for (const Kind kind : kKinds) all_kinds += bytes_of(plan.memory, kind);
  for (const std::int64_t bytes : plan.memory.bytes) difference.exact += bytes;
  difference.kept = unpadded - textbook.total;
  difference.padding = states - unpadded;
  difference.activations = bytes_of(plan.memory, Kind::activations);
  difference.working = bytes_of(plan.memory, Kind::working);
  difference.not_at_once = difference.exact - all_kinds;
  return difference;
}

}  // namespace zeepo
