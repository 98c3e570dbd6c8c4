// DeepSpeed's JSON configuration, as far as zeepo acts on it, laid over the options of a run.
//
// What the file does not say, or says as "auto", is empty here and leaves the option as it is: zeepo's defaults hold,
// not DeepSpeed's. A key that is an option one to one is described in option_table.h; the rest is read here.
// docs/deepspeed.md tells what becomes of each key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/train/option_table.h"

namespace zeepo {

struct DeepSpeedConfig {
  std::string file;    // as errors name it
  OptionTexts values;  // of options, by the keys that option_table.h has for them

  // What means an option only together with others, or with the ranks.
  std::optional<std::int64_t> train_batch;
  std::optional<std::int64_t> prefetch_elements, most_live_elements;  // --prefetch, in elements of the run's dtype
  std::optional<double> start_part, end_part;                         // where rates start and end, in parts of --lr
  std::vector<std::filesystem::path> nvme_paths;

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
