#include "zeepo/cli/plan_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "zeepo/plan/count.h"
#include "zeepo/train/option_values.h"
#include "zeepo/zero/session.h"

namespace zeepo::cli {
namespace {

constexpr std::int64_t kUsualGpusPerNode = 8;

// What the description says of memory, where --memory does not.
void of_hardware(TrainOptions& options, const Hardware& hardware) {
  const auto fill = [](std::int64_t& bytes, std::int64_t of_gpu) {
    if (bytes == 0) bytes = of_gpu;
  };
  if (options.backend != Backend::cuda) throw UsageError("plan: --hardware describes GPUs: leave out --device cpu");
  fill(options.device_bytes, gpu_budget(static_cast<std::size_t>(hardware.device_bytes)));
  fill(options.host_bytes, hardware.host_bytes / hardware.gpus_per_node);
  fill(options.nvme_bytes, hardware.nvme_bytes / hardware.gpus_per_node);
}

// Above 0, times `unit`.
double parse_rate(const std::string& option, const std::string& text, double unit) {
  const double value = parse_number(option, text) * unit;
  if (!(value > 0 && std::isfinite(value))) throw UsageError("{} {}: must be a number above 0", option, text);
  return value;
}

}  // namespace

TrainOptions train_options(const PlanOptions& given) {
  return in_own_name([&] {
    TrainOptions options;
    options.model = given.model;
    options.backend = given.hardware ? Backend::cuda : default_backend();
    for (const auto& [name, text] : given.run) assign(options, name, text);
    if (given.hardware) of_hardware(options, *given.hardware);
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
  const std::int64_t on_node = options.hardware ? options.hardware->gpus_per_node : kUsualGpusPerNode;
  question.ranks = !options.ranks.empty() ? parse_count("plan: --ranks", options.ranks)
                   : options.hardware     ? options.hardware->nodes * on_node
                                          : 1;
  question.gpus_per_node = options.gpus_per_node.empty() ? std::min(question.ranks, on_node)
                                                         : parse_count("plan: --gpus-per-node", options.gpus_per_node);
  question.checkpoint_interval = parse_count("plan: --checkpoint-interval", options.interval);
  question.bytes = BytesPerParam::of(parse_count("plan: --bytes-per-param", options.bytes_per_param));
  question.peak_flops = parse_rate("plan: --peak-tflops", options.peak_tflops, 1e12);
  if (!options.bandwidth_gbps.empty())
    question.bytes_per_second = parse_rate("plan: --bandwidth", options.bandwidth_gbps, 1e9);
  return question;
}

}  // namespace zeepo::cli
