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

// Sets what other options imply, and says so; says what an option asks for and these ranks do not do.
std::vector<std::string> imply(int ranks, TrainOptions& options) {
  std::vector<std::string> notes;
  if (options.placement.activations != Place::device && !options.activation_checkpointing) {
    options.activation_checkpointing = true;
    notes.push_back(fmt::format("--offload-activations {} turns on --activation-checkpointing",
                                name_of(options.placement.activations)));
  }
  if (options.sum_order == SumOrder::local && ranks > 1)
    notes.push_back(fmt::format("--sum-order local is for a rank alone: {} ranks add in the global order", ranks));
  if (step_phase(options) == StepPhase::in_backward && options.stage == 0 && ranks > 1)
    notes.push_back(
        fmt::format("--clip 0 at --stage 0: {} ranks step after the backward pass, not inside it, and keep all "
                    "gradients until then",
                    ranks));
  return notes;
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
  std::vector<std::string> notes = imply(ranks, options);
  check(options);
  return {std::move(options), std::move(notes)};
}

}  // namespace zeepo
