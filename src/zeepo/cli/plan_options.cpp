#include "zeepo/cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "zeepo/plan/count.h"
#include "zeepo/train/option_values.h"
#include "zeepo/zero/session.h"

namespace zeepo::cli {
namespace {

constexpr std::int64_t kUsualGpusPerNode = 8;

// What the description says of memory, where --memory does not: the ranks of a node share it, as those of a run do.
void of_hardware(TrainOptions& options, const Hardware& hardware, const RankCounts& ranks) {
  const auto fill = [](std::int64_t& bytes, std::int64_t of_gpu) {
    if (bytes == 0) bytes = of_gpu;
  };
  if (options.backend != Backend::cuda) throw UsageError("plan: --hardware describes GPUs: leave out --device cpu");
  fill(options.device_bytes, gpu_budget(static_cast<std::size_t>(hardware.device_bytes)));
  if (hardware.nvme_bytes == 0 && (options.nvme_bytes > 0 || !options.nvme_paths.empty()))
    throw UsageError("plan: --nvme-path, --memory nvme=: {} is described without a disk", hardware.name);
  const std::int64_t sharing = std::min(ranks.on_node, ranks.all);
  fill(options.host_bytes, hardware.host_bytes / sharing);
  fill(options.nvme_bytes, hardware.nvme_bytes / sharing);
}

// Above 0, times `unit`.
double parse_rate(const std::string& option, const std::string& text, double unit) {
  constexpr double kMost = 1e9;  // a zettaFLOP/s, an exabyte/s
  const double value = parse_number(option, text);
  if (!(value > 0 && value <= kMost)) throw UsageError("{} {}: must be above 0, and {:g} at most", option, text, kMost);
  return value * unit;
}

}  // namespace

RankCounts rank_counts(const PlanOptions& given) {
  const std::int64_t gpus = given.hardware ? given.hardware->gpus_per_node : kUsualGpusPerNode;
  RankCounts counts;
  counts.all = !given.ranks.empty() ? parse_count("plan: --ranks", given.ranks)
               : given.hardware     ? given.hardware->nodes * gpus
                                    : 1;
  counts.on_node = given.gpus_per_node.empty() ? std::min(gpus, counts.all)
                                               : parse_count("plan: --gpus-per-node", given.gpus_per_node);
  if (given.hardware && counts.on_node > gpus)
    throw UsageError("plan: --gpus-per-node {}: --hardware has {} on a node", counts.on_node, gpus);
  return counts;
}

TrainOptions train_options(const PlanOptions& given) {
  return in_own_name([&] {
    TrainOptions options;
    options.model = given.model;
    options.backend = given.hardware ? Backend::cuda : default_backend();
    for (const auto& [name, text] : given.run) assign(options, name, text);
    if (given.hardware) of_hardware(options, *given.hardware, rank_counts(given));
    if (!given.run.contains("--dtype")) options.dtype = default_dtype(options.backend);
    if (options.nvme_bytes > 0 && options.nvme_paths.empty()) options.nvme_paths = {"DIR"};
    return options;
  });
}

Source source_of(const PlanOptions& options) {
  const bool shape = !options.layers.empty() || !options.hidden.empty() || !options.heads.empty();
  const int sources = (options.model.empty() ? 0 : 1) + (options.params.empty() ? 0 : 1) + (shape ? 1 : 0);
  if (sources != 1)
    throw UsageError(
        "plan: say what to plan by one of --model DIR, --params 7.5e9, or --layers L --hidden H --heads A{}",
        sources > 1 ? ", not by several" : "");
  if (!options.vocab.empty() && !shape) throw UsageError("plan: --vocab {}: goes with --layers", options.vocab);
  if (!options.model.empty()) return Source::model;
  if (options.hardware && !shape)
    throw UsageError("plan: --params {}: of a machine a model's shape is planned: --model or --layers", options.params);
  for (const char* name : kPlanRunOptions)
    if (options.run.contains(name) && !options.hardware && !options.inference)
      throw UsageError("plan: {}: goes with --model DIR or --hardware; the formulas do not depend on it", name);
  return shape ? Source::shape : Source::params;
}

TextbookQuestion question_of(const PlanOptions& options, Source source) {
  TextbookQuestion question;
  if (source == Source::params) question.params = parse_count("plan: --params", options.params);
  if (source == Source::shape) {
    for (const auto& [name, text] : {std::pair{"--layers", &options.layers}, std::pair{"--hidden", &options.hidden},
                                     std::pair{"--heads", &options.heads}})
      if (text->empty()) throw UsageError("plan: {} is missing: a shape is --layers L --hidden H --heads A", name);
    question = TextbookQuestion::of({.layers = parse_count("plan: --layers", options.layers),
                                     .hidden = parse_count("plan: --hidden", options.hidden),
                                     .heads = parse_count("plan: --heads", options.heads)});
    if (!options.vocab.empty()) question.vocab = parse_count("plan: --vocab", options.vocab, 0);
  }
  const RankCounts counts = rank_counts(options);
  question.ranks = counts.all;
  question.gpus_per_node = counts.on_node;
  question.checkpoint_interval = parse_count("plan: --checkpoint-interval", options.interval);
  question.bytes = BytesPerParam::of(parse_count("plan: --bytes-per-param", options.bytes_per_param));
  question.peak_flops = parse_rate("plan: --peak-tflops", options.peak_tflops, 1e12);
  if (!options.bandwidth_gbps.empty())
    question.bytes_per_second = parse_rate("plan: --bandwidth", options.bandwidth_gbps, 1e9);
  return question;
}

}  // namespace zeepo::cli
