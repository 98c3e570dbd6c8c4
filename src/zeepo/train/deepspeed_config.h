// DeepSpeed's JSON configuration, as far as zeepo acts on it, laid over the options of a run.
//
// What the file does not say, or says as "auto", is empty here and leaves the option as it is: zeepo's defaults hold,
// not DeepSpeed's. docs/deepspeed.md tells what becomes of each key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/train/options.h"

namespace zeepo {

struct DeepSpeedConfig {
  std::string file;  // as errors name it

  std::optional<std::int64_t> train_batch, micro_batch, grad_accum;
  std::optional<double> clip;
  std::optional<std::int64_t> print_every;

  std::optional<OptimizerType> optimizer;
  std::optional<double> lr, beta1, beta2, eps, weight_decay, momentum;

  std::optional<ScheduleType> schedule;
  std::optional<double> warmup_max_lr;         // goes before `lr`, as in DeepSpeed
  std::optional<double> lr_start, lr_end;      // rates
  std::optional<double> start_part, end_part;  // or parts of the rate
  std::optional<std::int64_t> warmup, schedule_end;
  std::optional<WarmupShape> warmup_shape;

  std::optional<DType> dtype;
  std::optional<float> loss_scale_initial, loss_scale_least;
  std::optional<int> loss_scale_patience, loss_scale_hysteresis;
  bool loss_scale_fixed = false;

  std::optional<int> stage;
  std::optional<Shares> params, optimizer_states;
  std::vector<std::filesystem::path> nvme_paths;
  std::optional<std::int64_t> piece_elements, prefetch_elements, most_live_elements;
  std::optional<std::int64_t> io_piece_bytes, io_depth;
  bool activation_checkpointing = false;
  std::optional<Place> activations;

  std::vector<std::string> unused;  // keys that zeepo does not act on, as "zero_optimization.overlap_comm"
};

// Both throw UsageError naming file, key and value. A file of more than kMaxDeepSpeedBytes is refused.
inline constexpr std::int64_t kMaxDeepSpeedBytes = 1 << 20;
DeepSpeedConfig parse_deepspeed_config(std::string_view json, const std::string& file);
DeepSpeedConfig load_deepspeed_config(const std::filesystem::path& path);

// One line that names every unused key; empty where there is none.
std::string warning_of(const DeepSpeedConfig& config);

// Lays the file over `options`, except for what `flags` ("--lr") name: they were given and win. Throws UsageError where
// the batch sizes contradict each other or cannot be shared by the ranks.
void apply(const DeepSpeedConfig& config, const std::set<std::string>& flags, int ranks, TrainOptions& options);

}  // namespace zeepo
