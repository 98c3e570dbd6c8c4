#include "zeepo/torch/torch_options.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {
namespace {

// What else `zeepo train` has is about its data, its loop, its files and its models.
constexpr std::array kTaken = {std::string_view("--stage"),         std::string_view("--offload-optimizer"),
                               std::string_view("--offload-param"), std::string_view("--nvme-path"),
                               std::string_view("--memory"),        std::string_view("--clip"),
                               std::string_view("--grad-accum"),    std::string_view("--dtype"),
                               std::string_view("--threads"),       std::string_view("--prefetch"),
                               std::string_view("--timeout"),       std::string_view("--moments"),
                               std::string_view("--seed"),          std::string_view("--on-nan"),
                               std::string_view("--gather-dtype"),  std::string_view("--node-copy"),
                               std::string_view("--reduce-dtype"),  std::string_view("--reduce-feedback"),
                               std::string_view("--node-size"),     std::string_view("--cache-policy"),
                               std::string_view("--device"),        std::string_view("--offload-activations"),
                               std::string_view("--placement")};
// Of the file's section "fp16", by the keys that it has there.
constexpr std::string_view kOfHalf = "fp16.";

// How much PyTorch saves is not known before. On the CPU host memory is there when it is touched.
void check_activations(const TrainOptions& options) {
  const Place place = options.placement.activations;
  const bool host = place == Place::host && options.backend == Backend::cuda && options.host_bytes == 0;
  const bool files = place == Place::nvme && options.nvme_bytes == 0;
  if (!host && !files) return;
  throw UsageError("init: offload_activations=\"{0}\" needs memory={{\"{0}\": ...}}, with room for them",
                   name_of(place));
}

// What the file says and nobody here acts on.
std::vector<std::string> notes_of(const DeepSpeedConfig& config) {
  std::vector<std::string> notes;
  if (const std::string warning = warning_of(config); !warning.empty()) notes.push_back(warning);
  constexpr std::array kSections = {std::pair("--optimizer", "optimizer"), std::pair("--schedule", "scheduler")};
  for (const auto& [option, section] : kSections)
    if (config.values.contains(option))
      notes.push_back(
          fmt::format("{}: {}: left to PyTorch: the optimizer that zeepo.init() is given and its "
                      "param_groups hold",
                      config.file, section));
  return notes;
}

std::string python_name(std::string name) {
  name.erase(0, name.starts_with(kOfHalf) ? kOfHalf.size() : std::string_view("--").size());
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace

GivenOptions make_torch_options(const OptionTexts& texts, const std::string& config_file, int ranks) {
  for (const auto& [name, text] : texts) {
    if (!find_option(name)) throw UsageError("init: {}: there is no such option", python_name(name));
    if (!name.starts_with(kOfHalf) && std::ranges::find(kTaken, name) == kTaken.end())
      throw UsageError("init: {}={}: an option of `zeepo train` that zeepo.init() does not take", python_name(name),
                       text);
  }
  OptionTexts given = texts;
  given.emplace("--device", "cpu");
  std::optional<DeepSpeedConfig> config;
  if (!config_file.empty()) config = load_deepspeed_config(config_file);
  if (!config || !config->values.contains("--clip")) given.emplace("--clip", "0");  // PyTorch clips where it is asked
  if (!config || !config->values.contains("--dtype")) given.emplace("--dtype", "fp32");  // the module's is known later
  GivenOptions options = make_options(given, config ? &*config : nullptr, ranks);
  options.notes.clear();  // of steps inside the backward pass, which there are none of here
  if (config) options.notes = notes_of(*config);
  check_activations(options.options);
  const LossScale::Options& scale = options.options.loss_scale;
  if (!scale.fixed && scale.least > scale.initial)
    throw UsageError("init: min_loss_scale {}: must be at most the loss scale at the start, {}", scale.least,
                     scale.initial);
  if (options.options.placement.in_files() && options.options.nvme_paths.empty())
    throw UsageError("init: \"nvme\" needs nvme_path=, a directory for its files");
  return options;
}

RuntimeOptions runtime_options(const TrainOptions& options, std::int64_t weights, int ranks) {
  RuntimeOptions runtime{.backend = options.backend,
                         .carrier = options.comm,
                         .threads = options.threads,
                         .device_bytes = options.device_bytes,
                         .host_bytes = options.host_bytes,
                         .nvme_bytes = 0,
                         .device_taken = ArenaTier::Taken::at_once,
                         .nvme_paths = {},
                         .timeout_seconds = options.timeout_seconds,
                         .report = ReportAs::nothing};
  // PyTorch computes on the same GPU; on the CPU memory comes into being when it is touched.
  if (options.backend == Backend::cuda) runtime.device_taken = ArenaTier::Taken::as_asked;
  if (!options.placement.in_files()) return runtime;
  // Weight, gradient sum, and the state with a weight of its own and two moments, each in whole pages.
  constexpr std::int64_t kBytesAWeight = 28, kPages = std::int64_t{64} << 20;
  runtime.nvme_paths = options.nvme_paths;
  runtime.nvme_bytes = options.nvme_bytes > 0 ? options.nvme_bytes : weights / ranks * kBytesAWeight + kPages;
  return runtime;
}

EngineOptions torch_engine_options(const TrainOptions& options, DType dtype) {
  TrainOptions run = options;
  run.dtype = dtype;
  EngineOptions engine = engine_options(RunSetup{.options = run, .config = {}, .model = nullptr, .ranks = {}});
  engine.step_phase = StepPhase::after_backward;  // rates are known when the step is taken
  constexpr std::int64_t kSnapshotBytes = std::int64_t{32} << 20;
  engine.snapshot_bytes = kSnapshotBytes;
  return engine;
}

}  // namespace zeepo
