#include "zeepo/train/run_setup.h"

#include <algorithm>
#include <numeric>

#include "zeepo/base/error.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/budget/memory_plan.h"
#include "zeepo/nn/freeze.h"
#include "zeepo/nn/layers.h"

namespace zeepo {
namespace {

constexpr std::int64_t kDefaultSeqLen = 1024;
constexpr int kHostPieces = 6;  // buffers for those that the host steps beside the device: down, stepped, up

ModelConfig configured(ModelConfig config, const TrainOptions& options) {
  if (options.dropout) config.embed_dropout = config.residual_dropout = config.attention_dropout = *options.dropout;
  return config;
}

std::shared_ptr<LanguageModel> model_for(const ModelConfig& config, const TrainOptions& options) {
  std::shared_ptr<LanguageModel> model = make_model(config);
  freeze(*model, options.freeze, "train: --freeze");
  if (options.products == Products::fp8)
    for (const auto& named : named_parameters(*model))
      if (named.parameter->partly_frozen())
        throw UsageError(
            "train: --matmul-dtype fp8: with whole layers, and --freeze {} freezes a part of {}{}; freeze all of it, "
            "or "
            "none",
            fmt::join(options.freeze, ","), named.prefix, named.parameter->name());
  tile_linears(*model, options.linear_tiles);
  set_products(*model, options.products);
  return model;
}

// `asked` at most, where it is given, in whole multiples of what a piece may be.
std::int64_t piece_elements(std::int64_t host_room, std::int64_t asked) {
  constexpr std::int64_t kBytesAnElement = 16;  // at most: gradient, weight and its remainder, two moments
  const std::int64_t least = EngineOptions::kPieceAlignment;
  std::int64_t most = EngineOptions{}.piece_elements;
  if (asked > 0) most = std::clamp(asked / least * least, least, most);
  if (host_room <= 0) return most;
  const std::int64_t fitting = host_room / 2 / EngineOptions{}.pieces_under_way / kBytesAnElement;
  return std::clamp(fitting / least * least, least, most);
}

// What a snapshot passes through where nothing else is said; with little host memory an eighth of it.
std::int64_t snapshot_bytes(const RunSetup& setup) {
  constexpr std::int64_t kUsual = 256 << 20;
  if (setup.options.checkpoint_dir.empty()) return 0;
  if (setup.options.checkpoint_bytes > 0) return setup.options.checkpoint_bytes;
  return setup.host_room > 0 ? std::clamp<std::int64_t>(setup.host_room / 8, 1, kUsual) : kUsual;
}

}  // namespace

RunSetup make_setup(TrainOptions options, const RankShape& ranks) {
  check(options);
  const ModelConfig config = load_config(options.model);
  return make_setup(std::move(options), ranks, config);
}

RunSetup make_setup(TrainOptions options, const RankShape& ranks, const ModelConfig& of_model) {
  check(options);
  ModelConfig config = configured(of_model, options);
  if (options.seq_len == 0) options.seq_len = std::min(kDefaultSeqLen, config.max_positions);
  if (options.seq_len > config.max_positions)
    throw UsageError("train: --seq-len {}: the model has {} positions", options.seq_len, config.max_positions);
  auto model = model_for(config, options);
  const bool choose_blocks = options.blocks_per_unit == 0;
  if (choose_blocks) options.blocks_per_unit = blocks_worth_a_message(*model);
  return {.options = std::move(options),
          .config = std::move(config),
          .model = std::move(model),
          .ranks = ranks,
          .blocks_chosen = choose_blocks};
}

int RunSetup::pieces_under_way() const {
  return levels.pieces_under_way.empty() ? EngineOptions{}.pieces_under_way : levels.pieces_under_way.back();
}

std::int64_t RunSetup::tokens_per_step() const {
  return options.micro_batch * options.grad_accum * ranks.ranks * options.seq_len;
}

std::int64_t RunSetup::rows_of(int rank) const {
  return balanced.rows.empty() ? options.micro_batch : balanced.rows[static_cast<std::size_t>(rank)];
}

std::int64_t RunSetup::rows_before(int rank) const {
  if (balanced.rows.empty()) return rank * options.micro_batch;
  return std::accumulate(balanced.rows.begin(), balanced.rows.begin() + rank, std::int64_t{0});
}

Arrangement RunSetup::arrangement() const {
  return {options.placement, options.activation_checkpointing, options.prefetch_bytes};
}

std::string RunSetup::flags() const {
  // A share that the host cannot step where the states came to live is refused where these are given.
  const bool none_for_host =
      options.host_step_share.value_or(0) > 0 && host_step_obstacle(options) != HostStepObstacle::none;
  return flags_of(arrangement()) + (none_for_host ? " --step-below device" : "");
}

RunSetup RunSetup::with(const Arrangement& arrangement) const {
  RunSetup other = *this;
  other.options.placement = arrangement.placement;
  other.options.activation_checkpointing = arrangement.activation_checkpointing;
  other.options.prefetch_bytes = arrangement.prefetch_bytes;
  return other;
}

RunSetup RunSetup::with(TrainOptions changed) const {
  RunSetup other = *this;
  other.options = std::move(changed);
  if (other.options.blocks_per_unit == 0) other.options.blocks_per_unit = blocks_worth_a_message(*model);
  if (other.options.micro_batch != options.micro_batch) other.balanced = {};
  if (other.options.linear_tiles != options.linear_tiles || other.options.products != options.products ||
      other.options.freeze != options.freeze)
    other.model = model_for(config, other.options);
  return other;
}

EngineOptions engine_options(const RunSetup& setup) {
  const TrainOptions& options = setup.options;
  OptimizerOptions optimizer = options.optimizer;
  optimizer.seed = options.seed;
  const bool on_host = step_side(options) == StepSide::host;
  const bool host_may_step = tunes_host_share(setup) || options.host_step_share.value_or(0) > 0;
  return {.dtype = options.dtype,
          .stage = options.stage,
          .prefetch_bytes = options.prefetch_bytes,
          .optimizer = optimizer,
          .decay = options.decay,
          .accumulation = options.grad_accum,
          .reduce = options.reduce,
          .sum_order = options.sum_order,
          .blocks_per_unit = options.blocks_per_unit,
          .placement = options.placement,
          .step_below_on = on_host ? StepSide::host : StepSide::device,
          .host_share = on_host ? 0 : options.host_step_share.value_or(0),
          .host_pieces_under_way = !on_host && host_may_step ? kHostPieces : 0,
          .piece_elements = piece_elements(setup.host_room, options.piece_elements),
          .pieces_under_way = setup.pieces_under_way(),
          .clip = options.clip,
          .step_phase = step_phase(options),
          .activation_checkpointing = options.activation_checkpointing,
          .loss_scale = options.loss_scale,
          .on_nan = options.on_nan,
          .wire = options.wire,
          .snapshot_bytes = snapshot_bytes(setup)};
}

LowerTiers::Options lower_options(const RunSetup& setup) {
  const TrainOptions& options = setup.options;
  LowerTiers::Options lower{.host_bytes = options.host_bytes,
                            .nvme_paths = {},
                            .nvme_bytes = 0,
                            .staging_bytes = staging_bytes(setup.host_room),
                            .link_bytes_per_second = options.link_bytes_per_second,
                            .nvme_bytes_per_second = options.nvme_bytes_per_second,
                            .io = options.io};
  if (options.placement.in_files()) lower.nvme_paths = options.nvme_paths;
  return lower;
}

TierOptions tier_options(const TrainOptions& options) {
  return {.command = "train",
          .backend = options.backend,
          .device_bytes = options.device_bytes,
          .host_bytes = options.host_bytes,
          .nvme_bytes = options.nvme_bytes,
          .nvme_paths = options.nvme_paths,
          .fills_files = options.choose.any()};
}

StepWork step_work(const TrainOptions& options) {
  return {.dtype = options.dtype,
          .grads = options.grad_accum > 1 ? DType::f32 : options.dtype,
          .optimizer = options.optimizer,
          .params_on_device = options.placement.params.on_device()};
}

bool tunes_host_share(const RunSetup& setup) {
  constexpr std::int64_t kLeastSteps = 12;  // with fewer, what is gained is less than what turning to it takes
  const TrainOptions& options = setup.options;
  return setup.room_to_probe && options.tune.host_share && !options.host_step_share &&
         options.backend == Backend::cuda && options.steps >= kLeastSteps &&
         host_step_obstacle(options) == HostStepObstacle::none && !options.placement.optimizer.in_files() &&
         !options.placement.params.in_files() && step_work(options).through_device() > step_work(options).to_host();
}

}  // namespace zeepo
