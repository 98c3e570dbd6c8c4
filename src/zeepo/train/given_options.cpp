#include "zeepo/train/given_options.h"

#include <set>

#include "zeepo/base/error.h"
#include "zeepo/train/option_values.h"

namespace zeepo {
namespace {

// In the order of the table, so that of several faults the same one is named.
void assign_all(const OptionTexts& texts, TrainOptions& options) {
  for (const auto& [name, text] : texts)
    if (!find_option(name)) throw UsageError("train: {}: there is no such option", name);
  for (const TrainOption& option : option_table())
    if (const auto found = texts.find(option.name); found != texts.end()) assign(options, option.name, found->second);
}

// What an option or a file has fixed is neither chosen nor tuned.
void close_choices(const OptionTexts& texts, TrainOptions& options) {
  const Placement& given = options.placement;
  const auto fixed = [&](const char* option, bool at_default) { return texts.contains(option) || !at_default; };
  if (fixed("--offload-param", given.params.on_device())) options.choose.params = false;
  if (fixed("--offload-optimizer", given.optimizer.on_device())) options.choose.optimizer = false;
  if (fixed("--offload-activations", given.activations == Place::device)) options.choose.activations = false;
  if (fixed("--prefetch", options.prefetch_bytes == TrainOptions{}.prefetch_bytes))
    options.choose.prefetch = options.tune.prefetch = false;
}

std::vector<std::string> imply(TrainOptions& options) {
  if (options.placement.activations == Place::device || options.activation_checkpointing) return {};
  options.activation_checkpointing = true;
  return {fmt::format("--offload-activations {} turns on --activation-checkpointing",
                      name_of(options.placement.activations))};
}

}  // namespace

GivenOptions make_options(const OptionTexts& texts, const DeepSpeedConfig* config, int ranks) {
  TrainOptions options;
  options.backend = default_backend();
  options.tune = {.prefetch = true, .pieces = true, .host_share = true};
  assign_all(texts, options);
  check_device("train: --device", options.backend);
  if (!texts.contains("--dtype")) options.dtype = default_dtype(options.backend);
  if (config) {
    std::set<std::string> names;
    for (const auto& [name, text] : texts) names.insert(name);
    apply(*config, names, ranks, options);
  }
  close_choices(texts, options);
  std::vector<std::string> implied = imply(options);
  check(options);
  return {std::move(options), std::move(implied)};
}

}  // namespace zeepo
