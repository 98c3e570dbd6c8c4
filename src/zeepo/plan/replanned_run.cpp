#include "zeepo/plan/replanned_run.h"

#include <exception>

#include "zeepo/base/error.h"
#include "zeepo/metrics/figure_text.h"
#include "zeepo/plan/plan_machine.h"
#include "zeepo/train/option_table.h"

namespace zeepo {
namespace {

TrainOptions options_of(const Event& plan) {
  TrainOptions options;
  for (const auto& [name, text] : object_in(plan, "options").items())
    if (find_option(name) != nullptr && text.is_string() && text != "") assign(options, name, text.get<std::string>());
  options.choose = {};  // what was chosen is among the options
  options.tune = {};
  return options;
}

// The buffers that the run took.
void take_levels(RunSetup& setup, const Event& tuning) {
  const auto pieces = tuning.find("pieces_under_way");
  if (pieces == tuning.end() || !pieces->is_array()) return;
  for (const Event& level : *pieces)
    if (level.is_number_integer()) setup.levels.pieces_under_way.push_back(level.get<int>());
}

}  // namespace

PredictedStep predict_again(const Event& plan) {
  const double ranks = number_in(plan, "world_size");
  if (object_in(plan, "options").empty() || !(ranks >= 1 && ranks < 1e6))
    return {0, "the log does not say with which options the run was made"};
  if (plan.contains("no_communication")) return {0, "the run was one with --no-communication"};
  try {
    const TrainOptions options = options_of(plan);
    const int world = static_cast<int>(ranks);
    const double threads = number_in(plan, "threads");
    const PlanMachine machine =
        probed_machine(options.backend, world, threads >= 1 && threads < 1e6 ? static_cast<int>(threads) : 0);
    if (!machine.rates) return {0, machine.source};
    const bool on_device = options.backend == Backend::cuda && world > 1;
    RunSetup setup =
        make_setup(options, {.rank = 0,
                             .ranks = world,
                             .ranks_on_node = world,
                             .meet = on_device ? RankShape::Meet::on_device : RankShape::Meet::in_host_memory});
    take_levels(setup, object_in(plan, "tuning"));
    const auto time = step_time(setup, machine);
    return time ? PredictedStep{time->seconds, machine.source}
                : PredictedStep{0, machine.source + " has not measured all that the run uses"};
  } catch (const std::exception& error) {  // a log may ask for anything
    return {0, error.what()};
  }
}

}  // namespace zeepo
