#include "zeepo/train/deepspeed_config.h"

#include <algorithm>
#include <limits>

#include "zeepo/base/file.h"
#include "zeepo/train/deepspeed_block.h"
#include "zeepo/train/option_values.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMostCounted = std::int64_t{1} << 48;

// One key that is an option.
void take(DeepSpeedBlock& block, const char* key, DeepSpeedConfig& config) {
  const TrainOption* option = find_option_by_key(block.prefix() + key);
  if (auto text = option->from_json(block, key)) config.values[option->name] = std::move(*text);
}

// All keys of this object that are options.
void take_all(DeepSpeedBlock& block, DeepSpeedConfig& config) {
  for (const TrainOption& option : option_table())
    for (const std::string& key : option.deepspeed) {
      const std::size_t own = block.prefix().size();
      if (key.starts_with(block.prefix()) && key.find('.', own) == std::string::npos)
        take(block, key.c_str() + own, config);
    }
}

// What the file has said so far, over the defaults.
TrainOptions taken(const DeepSpeedConfig& config) {
  TrainOptions options;
  for (const TrainOption& option : option_table())
    if (const auto found = config.values.find(option.name); found != config.values.end())
      option.parse(options, found->second);
  return options;
}

void read_optimizer(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto optimizer = top.block("optimizer");
  if (!optimizer) return;
  take(*optimizer, "type", config);
  if (!optimizer->has("type")) optimizer->refuse("type", "must be AdamW, Adam or SGD");
  // DeepSpeed's Adam decays as AdamW does unless it is told not to.
  bool decoupled = true;
  if (auto params = optimizer->block("params")) {
    take_all(*params, config);
    decoupled = params->flag("adam_w_mode").value_or(true);
    (void)params->flag("torch_adam");  // another implementation of the same arithmetic
    params->unused_flags({"amsgrad", "bias_correction", "nesterov", "fused", "foreach", "maximize"});
    params->unused_numbers({"dampening"});
    params->name_unused();
  }
  if (const auto type = config.values.find("--optimizer"); type != config.values.end() && type->second == "adam")
    type->second = decoupled ? "adamw" : "adam";
  optimizer->unused_flags({"legacy_fusion"});
  optimizer->name_unused();
}

// As rates, or as parts of --lr in cosine schedules.
void read_ends(DeepSpeedBlock& params, ScheduleType type, DeepSpeedConfig& config) {
  if (type == ScheduleType::cosine) {
    config.start_part = params.number("warmup_min_ratio", 0, 1);
    config.end_part = params.number("cos_min_ratio", 0, 1);
    return;
  }
  take(params, "warmup_max_lr", config);  // goes before the optimizer's rate, as in DeepSpeed
  take(params, "warmup_min_lr", config);
  const auto start = config.values.find("scheduler.params.warmup_min_lr");
  if (start == config.values.end()) return;
  const Schedule schedule = taken(config).schedule;
  if (params.number("warmup_max_lr", 0, std::numeric_limits<double>::max()) && schedule.lr_start > schedule.lr)
    params.refuse("warmup_min_lr", fmt::format("must be at most warmup_max_lr, {}", schedule.lr));
  if (type == ScheduleType::linear) config.values["--lr-end"] = start->second;  // where DeepSpeed's decay ends
}

void read_scheduler(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto scheduler = top.block("scheduler");
  if (!scheduler) return;
  take(*scheduler, "type", config);
  if (!scheduler->has("type")) scheduler->refuse("type", "must be WarmupLR, WarmupDecayLR or WarmupCosineLR");
  const bool known = config.values.contains("--schedule");
  const ScheduleType type = taken(config).schedule.type;
  if (auto params = scheduler->block("params")) {
    take(*params, "warmup_num_steps", config);
    take(*params, "warmup_type", config);
    read_ends(*params, type, config);
    if (!known || type != ScheduleType::constant) {
      take(*params, "total_num_steps", config);
      const Schedule schedule = taken(config).schedule;
      if (schedule.end > 0 && schedule.end < schedule.warmup)
        params->refuse("total_num_steps", fmt::format("must be at least warmup_num_steps, {}", schedule.warmup));
    }
    params->name_unused();
  }
  scheduler->name_unused();
}

void read_loss_scale(DeepSpeedBlock& fp16, DeepSpeedConfig& config) {
  take_all(fp16, config);
  const LossScale::Options scale = taken(config).loss_scale;
  if (fp16.has("min_loss_scale") && !scale.fixed && scale.least > scale.initial)
    fp16.refuse("min_loss_scale", fmt::format("must be at most the loss scale at the start, {}", scale.initial));
  fp16.unused_flags({"auto_cast", "consecutive_hysteresis", "fp16_master_weights_and_grads"});
  fp16.name_unused();
}

// Both switched off is fp32; a block without "enabled" is off in DeepSpeed.
void read_dtype(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  bool any_off = false, any_open = false;
  std::optional<DType> chosen;
  const auto read = [&](const char* name, DType dtype) {
    auto block = top.block(name);
    if (!block) return;
    const auto enabled = block->flag("enabled");
    if (!enabled && block->has("enabled")) any_open = true;
    if (enabled == false) any_off = true;
    if (enabled == true && chosen && *chosen != dtype) block->refuse("enabled", "fp16 and bf16 cannot both be enabled");
    if (enabled == true) chosen = dtype;
    if (dtype == DType::f16) return read_loss_scale(*block, config);
    block->unused_flags({"check_grad_overflow", "immediate_grad_update", "bf16_master_weights_and_grads"});
    block->name_unused();
  };
  read("fp16", DType::f16);
  read("bf16", DType::bf16);
  read("bfloat16", DType::bf16);  // its older name
  if (!chosen && any_off && !any_open) chosen = DType::f32;
  if (chosen) config.values["--dtype"] = name_of(*chosen);
}

// Place, share and path together are `option`.
void read_offload(DeepSpeedBlock& zero, const char* name, const char* option, DeepSpeedConfig& config) {
  auto offload = zero.block(name);
  if (!offload) return;
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
  if (place)
    config.values[option] = text_of(Shares{place == Place::host ? share : 0, place == Place::nvme ? share : 0});
}

// ZeRO++. A second partition of one rank is none.
void read_compression(DeepSpeedBlock& zero, DeepSpeedConfig& config) {
  if (zero.flag("zero_quantized_weights") == true) config.values["--gather-dtype"] = "int8";
  if (zero.flag("zero_quantized_gradients") == true) config.values["--reduce-dtype"] = "int4";
  const auto size = zero.whole("zero_hpz_partition_size", 1, std::numeric_limits<int>::max());
  if (!size || *size == 1) return;
  config.values["--node-copy"] = "true";
  config.values["--node-size"] = fmt::format("{}", *size);
}

void read_zero(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto zero = top.block("zero_optimization");
  if (!zero) return;
  take_all(*zero, config);
  read_offload(*zero, "offload_param", "--offload-param", config);
  read_offload(*zero, "offload_optimizer", "--offload-optimizer", config);
  config.prefetch_elements = zero->whole("stage3_prefetch_bucket_size", 0, kMostCounted);
  config.most_live_elements = zero->whole("stage3_max_live_parameters", 0, kMostCounted);
  read_compression(*zero, config);
  zero->unused_flags({"overlap_comm", "contiguous_gradients", "reduce_scatter", "allgather_partitions",
                      "load_from_fp32_weights", "elastic_checkpoint", "round_robin_gradients",
                      "ignore_unused_parameters", "stage3_gather_16bit_weights_on_model_save",
                      "stage3_gather_fp16_weights_on_model_save", "memory_efficient_linear", "cpu_offload",
                      "cpu_offload_param", "cpu_offload_use_pin_memory"});
  zero->unused_numbers({"reduce_bucket_size", "allgather_bucket_size", "stage3_param_persistence_threshold",
                        "stage3_model_persistence_threshold", "stage3_max_reuse_distance"});
  zero->name_unused();
}

void read_aio(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto aio = top.block("aio");
  if (!aio) return;
  take_all(*aio, config);
  if (taken(config).io.call_bytes % kDirectAlignment != 0)
    aio->refuse("block_size", fmt::format("must be a multiple of {}", kDirectAlignment));
  aio->unused_numbers({"thread_count", "intra_op_parallelism"});
  aio->unused_flags({"single_submit", "overlap_events", "use_gds"});
  aio->name_unused();
}

// DeepSpeed's block only says how; it is taken as a wish for checkpointing where it asks for anything.
void read_activations(DeepSpeedBlock& top, DeepSpeedConfig& config) {
  auto block = top.block("activation_checkpointing");
  if (!block) return;
  const bool to_host = block->flag("cpu_checkpointing") == true;
  const auto partition = block->flag("partition_activations");
  if (partition) block->name_as_unused("partition_activations");
  const bool counted = block->whole("number_checkpoints", 1, kMostCounted).has_value();
  if (to_host) config.values["--offload-activations"] = "host";
  if (to_host || partition == true || counted) config.values["--activation-checkpointing"] = "true";
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
  take_all(top, config);
  config.train_batch = top.whole("train_batch_size", 1, kMostCounted);
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
