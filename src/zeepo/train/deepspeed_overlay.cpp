#include <algorithm>
#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/train/deepspeed_config.h"

namespace zeepo {
namespace {

using Flags = std::set<std::string>;

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
  if (!config.train_batch) return;
  const bool micro_flag = flags.contains("--micro-batch"), accum_flag = flags.contains("--grad-accum");
  const bool micro_known = micro_flag || config.values.contains("--micro-batch");
  const bool accum_known = accum_flag || config.values.contains("--grad-accum");
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

// Of the rate that holds in the end.
void lay_parts(const DeepSpeedConfig& config, const Flags& flags, Schedule& schedule) {
  if (config.start_part) schedule.lr_start = *config.start_part * schedule.lr;
  if (config.end_part && !flags.contains("--lr-end")) schedule.lr_end = *config.end_part * schedule.lr;
}

void lay_paths(const DeepSpeedConfig& config, const Flags& flags, TrainOptions& options) {
  if (!flags.contains("--nvme-path") && !config.nvme_paths.empty()) options.nvme_paths = config.nvme_paths;
  const auto need_path = [&](const char* option, const char* block, const Shares& shares) {
    if (flags.contains(option) || !config.values.contains(option)) return;
    if (shares.in_files() && options.nvme_paths.empty())
      throw UsageError("{}: zero_optimization.{}.nvme_path: absent: with device nvme there must be one, or --nvme-path",
                       config.file, block);
  };
  need_path("--offload-param", "offload_param", options.placement.params);
  need_path("--offload-optimizer", "offload_optimizer", options.placement.optimizer);
}

void lay_prefetch(const DeepSpeedConfig& config, const Flags& flags, TrainOptions& options) {
  if (flags.contains("--prefetch")) return;
  const auto bytes_an_element = static_cast<std::int64_t>(size_of(options.dtype));
  if (config.prefetch_elements) options.prefetch_bytes = *config.prefetch_elements * bytes_an_element;
  if (config.most_live_elements)
    options.prefetch_bytes = std::min(options.prefetch_bytes, *config.most_live_elements * bytes_an_element);
}

}  // namespace

void apply(const DeepSpeedConfig& config, const Flags& flags, int ranks, TrainOptions& options) {
  for (const TrainOption& option : option_table())
    if (const auto found = config.values.find(option.name); found != config.values.end())
      if (!flags.contains(option.name)) option.parse(options, found->second);
  lay_batch(config, flags, ranks, options);
  lay_parts(config, flags, options.schedule);
  lay_paths(config, flags, options);
  lay_prefetch(config, flags, options);
}

}  // namespace zeepo
