#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

void add_checkpoint_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::checkpoint;
  constexpr const char* kNewest = "newest";
  table.push_back(path(
      {.name = "--checkpoint-dir",
       .group = kGroup,
       .help = "Holds a directory for each checkpoint; one is written after the last step, too. All hosts share it",
       .otherwise = "no checkpoints",
       .effect = Effect::execution},
      [](auto& o) -> auto& { return o.checkpoint_dir; }));
  table.push_back(whole({.name = "--checkpoint-every",
                         .group = kGroup,
                         .help = "Steps between two checkpoints, written while training goes on",
                         .otherwise = "after the last step alone",
                         .effect = Effect::execution},
                        [](auto& o) -> auto& { return o.checkpoint_every; }, {.least = 1, .absent = 0}));
  table.push_back(whole({.name = "--checkpoint-keep",
                         .group = kGroup,
                         .help = "How many of the newest checkpoints stay",
                         .effect = Effect::execution},
                        [](auto& o) -> auto& { return o.checkpoint_keep; }, {.least = 1}));
  TrainOption memory = other(
      {.name = "--checkpoint-memory",
       .group = kGroup,
       .help =
           "Host memory that a checkpoint passes through on its way to the disk, at most; with less than all states "
           "take, steps wait for the disk",
       .otherwise = "256MiB; with --checkpoint-every and half of what is free",
       .effect = Effect::execution},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.checkpoint_bytes = parse_size_option(label, text);
        if (o.checkpoint_bytes < 1) throw UsageError("{} {}: must be at least 1", label, text);
      },
      [](const TrainOptions& o) { return o.checkpoint_bytes == 0 ? "" : text_of_size(o.checkpoint_bytes); });
  table.push_back(memory);
  table.push_back(whole({.name = "--stop-grace",
                         .group = kGroup,
                         .help = "Seconds from SIGTERM, SIGINT, SIGHUP or SIGUSR1 on, in which the step and its "
                                 "checkpoint must be done; then the process ends as by a second signal",
                         .otherwise = "as long as it takes",
                         .effect = Effect::execution,
                         .ranks = Ranks::may_differ},
                        [](auto& o) -> auto& { return o.stop_grace_seconds; }, {.least = 1, .absent = 0}));
  TrainOption resume = other(
      {.name = "--resume",
       .group = kGroup,
       .help = "Go on from this checkpoint or, without a value, from the newest whole one of --checkpoint-dir; --steps "
               "stays the number of the last step",
       .otherwise = "start anew",
       .value_left_out = kNewest,
       .effect = Effect::execution},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.resume.wanted = true;
        o.resume.from = text == kNewest ? std::filesystem::path() : parse_path(label, text);
      },
      [](const TrainOptions& o) -> std::string {
        if (!o.resume.wanted) return "";
        return o.resume.from.empty() ? kNewest : o.resume.from.string();
      });
  resume.check = [](const TrainOptions& o) {
    if (o.resume.wanted && o.resume.from.empty() && o.checkpoint_dir.empty())
      throw UsageError("train: --resume: name a checkpoint, or give --checkpoint-dir to look for the newest in");
  };
  table.push_back(resume);
  table.push_back(flag(
      {.name = "--allow-changes",
       .group = kGroup,
       .help = "Let --resume go on with other options than those saved, where these change the result",
       .effect = Effect::execution},
      [](auto& o) -> auto& { return o.resume.allow_changes; }));
}

}  // namespace zeepo
