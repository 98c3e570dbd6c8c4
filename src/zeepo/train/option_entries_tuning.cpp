#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

namespace {

std::vector<std::string> parse_patterns(const std::string& label, const std::string& text) {
  std::vector<std::string> patterns;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin)
      throw UsageError("{} {}: has an empty pattern; write PATTERN or PATTERN,PATTERN,...", label, text);
    patterns.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return patterns;
}

}  // namespace

void add_tuning_options(std::vector<TrainOption>& table) {
  TrainOption freeze = other(
      {.name = "--freeze",
       .group = OptionGroup::optimizer,
       .help = "Names of weights that stay as they are (*, ? and [...] match): no gradient, no optimizer state. May be "
               "given several times, or as a list with commas",
       .otherwise = "all weights are trained"},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.freeze = parse_patterns(label, text);
      },
      [](const TrainOptions& o) { return fmt::format("{}", fmt::join(o.freeze, ",")); });
  freeze.repeatable = true;
  table.push_back(freeze);
}

void add_evaluation_options(std::vector<TrainOption>& table) {
  table.push_back(path(
      {.name = "--eval-data",
       .group = OptionGroup::data,
       .help = "Like --data: its mean loss is told every --eval-every steps and after the last one",
       .otherwise = "no evaluation",
       .effect = Effect::execution,
       .ranks = Ranks::agree_in_contents},
      [](auto& o) -> auto& { return o.eval_data; }));
  table.push_back(whole({.name = "--eval-every",
                         .group = OptionGroup::data,
                         .help = "Steps between two evaluations",
                         .otherwise = "after the last step alone",
                         .effect = Effect::execution},
                        [](auto& o) -> auto& { return o.eval_every; }, {.least = 1, .absent = 0}));
  table.push_back(whole({.name = "--eval-samples",
                         .group = OptionGroup::data,
                         .help = "Samples of --eval-data that are evaluated: the first ones",
                         .otherwise = "all of them",
                         .effect = Effect::execution},
                        [](auto& o) -> auto& { return o.eval_samples; }, {.least = 1, .absent = 0}));
  table.push_back(
      choice({.name = "--on-nan",
              .group = OptionGroup::numerics,
              .help = "A loss or gradient norm that is not a number ends the run, or its step is skipped and "
                      "the next batch is taken",
              .effect = Effect::execution},
             [](auto& o) -> auto& { return o.on_nan; }, {{"stop", OnNan::stop}, {"skip", OnNan::skip}}));
}

}  // namespace zeepo
