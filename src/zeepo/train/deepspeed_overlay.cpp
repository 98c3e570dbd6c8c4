#include <algorithm>
#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/train/deepspeed_config.h"

namespace zeepo {
namespace {

using Flags = std::set<std::string>;

template <class T, class Value>
void lay(const Flags& flags, const char* flag, const std::optional<Value>& value, T& option) {
  if (value && !flags.contains(flag)) option = static_cast<T>(*value);
}

// train_batch_size over what the rest makes of it: the one that is missing.
std::int64_t rest_of_batch(const DeepSpeedConfig& config, const std::string& by, std::int64_t known, int ranks) {
  const std::int64_t whole = *config.train_batch, part = known * ranks;
  constexpr std::int64_t kMost = 1 << 20;
  if (whole % part != 0)
    throw UsageError("{}: train_batch_size {}: must be a multiple of {} x {} ranks", config.file, whole, by, ranks);
  if (whole / part > kMost)
    throw UsageError("{}: train_batch_size {}: is {} times {} x {} ranks, more than {}", config.file, whole,
                     whole / part, by, ranks, kMost);
  return whole / part;
}

// train_batch_size = micro-batch x accumulation x ranks. It gives what neither flags nor file say of the other two. A
// flag that contradicts it wins; a file that contradicts itself is a fault.
void lay_batch(const DeepSpeedConfig& config, const Flags& flags, int ranks, TrainOptions& options) {
  const bool micro_flag = flags.contains("--micro-batch"), accum_flag = flags.contains("--grad-accum");
  lay(flags, "--micro-batch", config.micro_batch, options.micro_batch);
  lay(flags, "--grad-accum", config.grad_accum, options.grad_accum);
  if (!config.train_batch) return;
  const bool micro_known = micro_flag || config.micro_batch, accum_known = accum_flag || config.grad_accum;
  // Flags are checked later, all together; nothing is derived from one that is out of range.
  if ((micro_flag && options.micro_batch < 1) || (accum_flag && options.grad_accum < 1)) return;
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  if (options.micro_batch > kMost || options.grad_accum > kMost) return;
  const auto micro =
      fmt::format("{} {}", micro_flag ? "--micro-batch" : "train_micro_batch_size_per_gpu", options.micro_batch);
  const auto accum =
      fmt::format("{} {}", accum_flag ? "--grad-accum" : "gradient_accumulation_steps", options.grad_accum);
  if (!micro_known) {
    options.micro_batch = rest_of_batch(config, accum, options.grad_accum, ranks);
  } else if (!accum_known) {
    options.grad_accum = rest_of_batch(config, micro, options.micro_batch, ranks);
  } else if (!micro_flag && !accum_flag && options.micro_batch * options.grad_accum * ranks != *config.train_batch) {
    throw UsageError("{}: train_batch_size {}: {} x {} x {} ranks is {}; leave one of them out, or make it \"auto\"",
                     config.file, *config.train_batch, micro, accum, ranks,
                     options.micro_batch * options.grad_accum * ranks);
  }
}

void lay_optimizer(const DeepSpeedConfig& config, const Flags& flags, TrainOptions& options) {
  lay(flags, "--clip", config.clip, options.clip);
  lay(flags, "--optimizer", config.optimizer, options.optimizer.type);
  lay(flags, "--betas", config.beta1, options.optimizer.beta1);
  lay(flags, "--betas", config.beta2, options.optimizer.beta2);
  lay(flags, "--eps", config.eps, options.optimizer.eps);
  lay(flags, "--momentum", config.momentum, options.optimizer.momentum);
  lay(flags, "--weight-decay", config.weight_decay, options.optimizer.weight_decay);
}

void lay_schedule(const DeepSpeedConfig& config, const Flags& flags, Schedule& schedule) {
  lay(flags, "--lr", config.warmup_max_lr ? config.warmup_max_lr : config.lr, schedule.lr);
  lay(flags, "--schedule", config.schedule, schedule.type);
  lay(flags, "--warmup", config.warmup, schedule.warmup);
  lay(flags, "--lr-end", config.lr_end, schedule.lr_end);
  if (config.end_part) lay(flags, "--lr-end", std::optional(*config.end_part * schedule.lr), schedule.lr_end);
  if (config.lr_start) schedule.lr_start = *config.lr_start;
  if (config.start_part) schedule.lr_start = *config.start_part * schedule.lr;
  if (config.warmup_shape) schedule.warmup_shape = *config.warmup_shape;
  if (config.schedule_end) schedule.end = *config.schedule_end;
}

void lay_loss_scale(const DeepSpeedConfig& config, LossScale::Options& scale) {
  scale.initial = config.loss_scale_initial.value_or(scale.initial);
  scale.least = config.loss_scale_least.value_or(scale.least);
  scale.patience = config.loss_scale_patience.value_or(scale.patience);
  scale.hysteresis = config.loss_scale_hysteresis.value_or(scale.hysteresis);
  scale.fixed = config.loss_scale_fixed;
}

void need_path(const DeepSpeedConfig& config, const Flags& flags, const char* flag, const char* block,
               const std::optional<Shares>& shares, const TrainOptions& options) {
  if (flags.contains(flag) || !shares || !shares->in_files() || !options.nvme_paths.empty()) return;
  throw UsageError("{}: zero_optimization.{}.nvme_path: absent: with device nvme there must be one, or --nvme-path",
                   config.file, block);
}

void lay_placement(const DeepSpeedConfig& config, const Flags& flags, TrainOptions& options) {
  lay(flags, "--offload-param", config.params, options.placement.params);
  lay(flags, "--offload-optimizer", config.optimizer_states, options.placement.optimizer);
  lay(flags, "--offload-activations", config.activations, options.placement.activations);
  if (config.activation_checkpointing) options.activation_checkpointing = true;
  if (!flags.contains("--nvme-path") && !config.nvme_paths.empty()) options.nvme_paths = config.nvme_paths;
  need_path(config, flags, "--offload-param", "offload_param", config.params, options);
  need_path(config, flags, "--offload-optimizer", "offload_optimizer", config.optimizer_states, options);
  if (config.piece_elements) options.piece_elements = *config.piece_elements;
  if (config.io_piece_bytes) options.io.piece_bytes = static_cast<std::size_t>(*config.io_piece_bytes);
  if (config.io_depth) options.io.depth = static_cast<int>(*config.io_depth);
  if (flags.contains("--prefetch")) return;
  const auto bytes_an_element = static_cast<std::int64_t>(size_of(options.dtype));
  if (config.prefetch_elements) options.prefetch_bytes = *config.prefetch_elements * bytes_an_element;
  if (config.most_live_elements)
    options.prefetch_bytes = std::min(options.prefetch_bytes, *config.most_live_elements * bytes_an_element);
}

}  // namespace

void apply(const DeepSpeedConfig& config, const Flags& flags, int ranks, TrainOptions& options) {
  lay_batch(config, flags, ranks, options);
  lay_optimizer(config, flags, options);
  lay_schedule(config, flags, options.schedule);
  lay(flags, "--dtype", config.dtype, options.dtype);
  lay_loss_scale(config, options.loss_scale);
  lay(flags, "--stage", config.stage, options.stage);
  lay_placement(config, flags, options);
  if (config.print_every) options.print_every = *config.print_every;
}

}  // namespace zeepo
