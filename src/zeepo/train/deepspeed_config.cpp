#include "zeepo/train/deepspeed_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "zeepo/base/file.h"
#include "zeepo/train/deepspeed_block.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMostSamples = 1 << 20;  // as check() has it for --micro-batch and --grad-accum
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr std::int64_t kMostSteps = std::int64_t{1} << 48;
constexpr int kMostCount = std::numeric_limits<int>::max();
constexpr double kMostFloat = 1e30;

std::optional<int> narrow(std::optional<std::int64_t> value) {
  return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
}

void read_batch(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  config.train_batch = top.whole("train_batch_size", 1, kMostElements);
  config.micro_batch = top.whole("train_micro_batch_size_per_gpu", 1, kMostSamples);
  config.grad_accum = top.whole("gradient_accumulation_steps", 1, kMostSamples);
}

void read_optimizer(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto optimizer = top.block("optimizer");
  if (!optimizer) return;
  config.optimizer = optimizer->choice<OptimizerType>(
      "type", {{"AdamW", OptimizerType::adamw}, {"Adam", OptimizerType::adam}, {"SGD", OptimizerType::sgd}});
  if (!config.optimizer && !optimizer->has("type")) optimizer->refuse("type", "must be AdamW, Adam or SGD");
  // DeepSpeed's Adam decays as AdamW does unless it is told not to.
  bool decoupled = true;
  if (auto params = optimizer->block("params")) {
    config.lr = params->number("lr", 0, kMostFloat);
    if (const auto betas = params->pair_below("betas", 0, 1)) {
      config.beta1 = betas->first;
      config.beta2 = betas->second;
    }
    config.eps = params->number("eps", 0, kMostFloat);
    config.weight_decay = params->number("weight_decay", 0, kMostFloat);
    config.momentum = params->number_below("momentum", 0, 1);
    decoupled = params->flag("adam_w_mode").value_or(true);
    (void)params->flag("torch_adam");  // another implementation of the same arithmetic
    params->unused_flags({"amsgrad", "bias_correction", "nesterov", "fused", "foreach", "maximize"});
    params->unused_numbers({"dampening"});
    params->name_unused();
  }
  if (config.optimizer == OptimizerType::adam && decoupled) config.optimizer = OptimizerType::adamw;
  optimizer->unused_flags({"legacy_fusion"});
  optimizer->name_unused();
}

void read_rates(DeepSpeedBlock& params, DeepSpeedConfig& config) {
  config.warmup_max_lr = params.number("warmup_max_lr", 0, kMostFloat);
  config.lr_start = params.number("warmup_min_lr", 0, kMostFloat);
  if (config.warmup_max_lr && config.lr_start && *config.lr_start > *config.warmup_max_lr)
    params.refuse("warmup_min_lr", fmt::format("must be at most warmup_max_lr, {}", *config.warmup_max_lr));
  if (config.schedule == ScheduleType::linear) config.lr_end = config.lr_start;  // where DeepSpeed's decay ends
}

void read_scheduler(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto scheduler = top.block("scheduler");
  if (!scheduler) return;
  config.schedule = scheduler->choice<ScheduleType>("type", {{"WarmupLR", ScheduleType::constant},
                                                             {"WarmupDecayLR", ScheduleType::linear},
                                                             {"WarmupCosineLR", ScheduleType::cosine}});
  if (!config.schedule && !scheduler->has("type"))
    scheduler->refuse("type", "must be WarmupLR, WarmupDecayLR or WarmupCosineLR");
  if (auto params = scheduler->block("params")) {
    config.warmup = params->whole("warmup_num_steps", 0, kMostSteps);
    config.warmup_shape =
        params->choice<WarmupShape>("warmup_type", {{"linear", WarmupShape::linear}, {"log", WarmupShape::log}});
    if (config.schedule == ScheduleType::cosine) {
      config.start_part = params->number("warmup_min_ratio", 0, 1);
      config.end_part = params->number("cos_min_ratio", 0, 1);
    } else {
      read_rates(*params, config);
    }
    if (config.schedule != ScheduleType::constant) {
      config.schedule_end = params->whole("total_num_steps", 1, kMostSteps);
      if (config.schedule_end && *config.schedule_end < config.warmup.value_or(0))
        params->refuse("total_num_steps", fmt::format("must be at least warmup_num_steps, {}", *config.warmup));
    }
    params->name_unused();
  }
  scheduler->name_unused();
}

void read_loss_scale(DeepSpeedBlock& fp16, DeepSpeedConfig& config) {
  constexpr double kLeast = 0x1p-24, kMost = 0x1p31;
  if (const auto power = fp16.whole("initial_scale_power", 0, 31))
    config.loss_scale_initial = std::ldexp(1.0f, static_cast<int>(*power));
  if (const auto scale = fp16.number("loss_scale", 0, kMost); scale && *scale != 0) {
    if (*scale < kLeast) fp16.refuse("loss_scale", fmt::format("must be 0, for a dynamic one, or at least {}", kLeast));
    config.loss_scale_initial = static_cast<float>(*scale);
    config.loss_scale_fixed = true;
  }
  if (const auto least = fp16.number("min_loss_scale", kLeast, kMost)) {
    config.loss_scale_least = static_cast<float>(*least);
    const float initial = config.loss_scale_initial.value_or(LossScale::Options{}.initial);
    if (!config.loss_scale_fixed && *config.loss_scale_least > initial)
      fp16.refuse("min_loss_scale", fmt::format("must be at most the loss scale at the start, {}", initial));
  }
  config.loss_scale_patience = narrow(fp16.whole("loss_scale_window", 1, kMostCount));
  config.loss_scale_hysteresis = narrow(fp16.whole("hysteresis", 1, kMostCount));
  fp16.unused_flags({"auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads"});
  fp16.name_unused();
}

// Both switched off is fp32; a block without "enabled" is off in DeepSpeed.
void read_dtype(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  bool any_off = false, any_open = false;
  const auto read = [&](const char* name, DType dtype) {
    auto block = top.block(name);
    if (!block) return;
    const auto enabled = block->flag("enabled");
    if (!enabled && block->has("enabled")) any_open = true;
    if (enabled == false) any_off = true;
    if (enabled == true && config.dtype && *config.dtype != dtype)
      block->refuse("enabled", "fp16 and bf16 cannot both be enabled");
    if (enabled == true) config.dtype = dtype;
    if (dtype == DType::f16) return read_loss_scale(*block, config);
    block->unused_flags({"check_grad_overflow", "immediate_grad_update", "bf16_master_weights_and_grads"});
    block->name_unused();
  };
  read("fp16", DType::f16);
  read("bf16", DType::bf16);
  read("bfloat16", DType::bf16);  // its older name
  if (!config.dtype && any_off && !any_open) config.dtype = DType::f32;
}

std::optional<Shares> read_offload(DeepSpeedBlock& zero, const char* name, DeepSpeedConfig& config) {
  auto offload = zero.block(name);
  if (!offload) return std::nullopt;
  const auto place =
      offload->choice<Place>("device", {{"none", Place::device}, {"cpu", Place::host}, {"nvme", Place::nvme}});
  const double share = offload->number("ratio", 0, 1).value_or(1);
  const auto path = offload->text("nvme_path");
  if (path && (path->empty() || path->find('\0') != std::string::npos))
    offload->refuse("nvme_path", "must be a directory");
  if (path && place == Place::nvme) {  // with another device it waits for the day it is changed
    const std::filesystem::path directory = *path;
    if (std::ranges::find(config.nvme_paths, directory) == config.nvme_paths.end())
      config.nvme_paths.push_back(directory);
  }
  offload->unused_flags({"pin_memory", "pipeline_read", "pipeline_write", "pipeline", "fast_init", "super_offload"});
  offload->unused_numbers({"buffer_count", "buffer_size", "max_in_cpu"});
  offload->name_unused();
  if (!place) return std::nullopt;
  return Shares{place == Place::host ? share : 0, place == Place::nvme ? share : 0};
}

void read_zero(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto zero = top.block("zero_optimization");
  if (!zero) return;
  config.stage = narrow(zero->whole("stage", 0, 3));
  config.params = read_offload(*zero, "offload_param", config);
  config.optimizer_states = read_offload(*zero, "offload_optimizer", config);
  config.piece_elements = zero->whole("sub_group_size", 1, kMostElements);
  config.prefetch_elements = zero->whole("stage3_prefetch_bucket_size", 0, kMostElements);
  config.most_live_elements = zero->whole("stage3_max_live_parameters", 0, kMostElements);
  zero->unused_flags({"overlap_comm", "contiguous_gradients", "reduce_scatter", "allgather_partitions",
                      "load_from_fp32_weights", "elastic_checkpoint", "round_robin_gradients",
                      "ignore_unused_parameters", "stage3_gather_16bit_weights_on_model_save",
                      "stage3_gather_fp16_weights_on_model_save", "zero_quantized_weights", "zero_quantized_gradients",
                      "memory_efficient_linear", "cpu_offload", "cpu_offload_param", "cpu_offload_use_pin_memory"});
  zero->unused_numbers({"reduce_bucket_size", "allgather_bucket_size", "stage3_param_persistence_threshold",
                        "stage3_model_persistence_threshold", "stage3_max_reuse_distance", "zero_hpz_partition_size"});
  zero->name_unused();
}

void read_aio(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto aio = top.block("aio");
  if (!aio) return;
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30, kMostDepth = 4096, kPage = kDirectAlignment;
  config.io_piece_bytes = aio->whole("block_size", kPage, kMostBytes);
  if (config.io_piece_bytes.value_or(0) % kPage != 0)
    aio->refuse("block_size", fmt::format("must be a multiple of {}", kPage));
  config.io_depth = aio->whole("queue_depth", 1, kMostDepth);
  aio->unused_numbers({"thread_count", "intra_op_parallelism"});
  aio->unused_flags({"single_submit", "overlap_events", "use_gds"});
  aio->name_unused();
}

// DeepSpeed's block only says how; it is taken as a wish for checkpointing where it asks for anything.
void read_activations(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto block = top.block("activation_checkpointing");
  if (!block) return;
  if (block->flag("cpu_checkpointing") == true) {
    config.activation_checkpointing = true;
    config.activations = Place::host;
  }
  if (const auto partition = block->flag("partition_activations")) {
    if (*partition) config.activation_checkpointing = true;
    block->name_as_unused("partition_activations");
  }
  if (block->whole("number_checkpoints", 1, kMostElements)) config.activation_checkpointing = true;
  block->unused_flags({"contiguous_memory_optimization", "synchronize_checkpoint_boundary", "profile"});
  block->name_unused();
}

}  // namespace

DeepSpeedConfig parse_deepspeed_config(std::string_view json, const std::string& file) {
  DeepSpeedConfig config;
  config.file = file;
  nlohmann::json object;
  try {
    object = parse_json_object(json, file);
  } catch (const Error& fault) {
    throw UsageError("{}", fault.what());
  }
  DeepSpeedBlock top(object, config.file, config.unused);
  read_batch(top, config);
  config.clip = top.number("gradient_clipping", 0, kMostFloat);
  config.print_every = top.whole("steps_per_print", 1, kMostSteps);
  read_optimizer(top, config);
  read_scheduler(top, config);
  read_dtype(top, config);
  read_zero(top, config);
  read_aio(top, config);
  read_activations(top, config);
  top.unused_flags({"wall_clock_breakdown", "memory_breakdown", "dump_state", "prescale_gradients", "sparse_gradients",
                    "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "disable_allgather",
                    "fp32_allreduce"});
  top.unused_numbers({"gradient_predivide_factor"});
  top.name_unused();
  return config;
}

DeepSpeedConfig load_deepspeed_config(const std::filesystem::path& path) {
  const std::string file = fmt::format("train: --config {}", path.string());
  std::string json;
  try {
    json = read_text(path, kMaxDeepSpeedBytes);
  } catch (const Error& fault) {
    throw UsageError("train: --config: {}", fault.what());
  }
  return parse_deepspeed_config(json, file);
}

std::string warning_of(const DeepSpeedConfig& config) {
  if (config.unused.empty()) return {};
  return fmt::format("{}: zeepo does not act on {}", config.file, fmt::join(config.unused, ", "));
}

}  // namespace zeepo
