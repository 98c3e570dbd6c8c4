#include "zeepo/train/option_table.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/train/option_entries.h"

namespace zeepo {

std::string_view title_of(OptionGroup group) {
  switch (group) {
    case OptionGroup::data: return "Model, data and batches";
    case OptionGroup::optimizer: return "Optimizer";
    case OptionGroup::numerics: return "Arithmetic";
    case OptionGroup::ranks: return "Device and ranks";
    case OptionGroup::memory: return "Memory and placement";
    case OptionGroup::checkpoint: return "Checkpoints";
    case OptionGroup::report: return "Reports and output";
    case OptionGroup::file: break;
  }
  return "DeepSpeed's file";
}

const std::vector<TrainOption>& option_table() {
  static const std::vector<TrainOption> table = [] {
    std::vector<TrainOption> made;
    add_data_options(made);
    add_optimizer_options(made);
    add_tuning_options(made);
    add_evaluation_options(made);
    add_numerics_options(made);
    add_rank_options(made);
    add_wire_options(made);
    add_elastic_options(made);
    add_memory_options(made);
    add_checkpoint_options(made);
    add_report_options(made);
    add_metrics_options(made);
    add_file_options(made);
    return made;
  }();
  return table;
}

std::string text_of_default(const TrainOption& option) {
  static const TrainOptions usual;
  return option.text(usual);
}

const TrainOption* find_option(std::string_view name) {
  const auto found = std::ranges::find(option_table(), name, &TrainOption::name);
  return found == option_table().end() ? nullptr : &*found;
}

const TrainOption* find_option_by_key(std::string_view deepspeed_key) {
  for (const TrainOption& option : option_table())
    if (std::ranges::find(option.deepspeed, deepspeed_key) != option.deepspeed.end()) return &option;
  return nullptr;
}

void assign(TrainOptions& options, const std::string& name, const std::string& text) {
  const TrainOption* option = find_option(name);
  if (!option) throw UsageError("train: {}: there is no such option", name);
  if (text.empty()) throw UsageError("train: {} \"\": must have a value; leave it out if there is none", name);
  option->parse(options, text);
  if (option->check) option->check(options);
}

std::vector<std::pair<std::string, std::string>> agreed_values(const TrainOptions& options) {
  std::vector<std::pair<std::string, std::string>> values;
  for (const TrainOption& option : option_table()) {
    const std::string text = option.text(options);
    if (option.ranks == Ranks::agree) values.emplace_back(option.name, text.empty() ? "none" : text);
    if (option.ranks == Ranks::agree_if_given) values.emplace_back(option.name, text.empty() ? "none" : "some");
  }
  return values;
}

std::vector<OptionDifference> differences(const TrainOptions& before, const TrainOptions& after) {
  std::vector<OptionDifference> found;
  for (const TrainOption& option : option_table()) {
    std::string was = option.text(before), is = option.text(after);
    if (was != is) found.push_back({&option, std::move(was), std::move(is)});
  }
  return found;
}

}  // namespace zeepo
