// What is trained, with which options, by which rank: all that a plan depends on.
//
// A value. Planning never changes the setup it is given: whatever else it tries is a changed copy. Making one needs
// config.json alone, no weights, no data and no other rank.
#pragma once

#include <memory>

#include "zeepo/budget/absent_ranks.h"
#include "zeepo/budget/budgets.h"
#include "zeepo/model/language_model.h"
#include "zeepo/train/options.h"
#include "zeepo/train/step_probe.h"
#include "zeepo/train/tuner.h"

namespace zeepo {

struct RunSetup {
  TrainOptions options;
  ModelConfig config;
  std::shared_ptr<LanguageModel> model;  // shared by copies; one engine at a time is attached to it
  RankShape ranks;
  struct Balanced {
    std::vector<double> speeds;      // of each rank
    std::vector<std::int64_t> rows;  // of a micro-step, that each rank computes
  } balanced = {};                   // by speed; empty: --micro-batch rows each
  struct TimedGathers {
    std::int64_t part_bytes = 0;  // of each rank; 0: none was timed
    double direct_seconds = 0, ring_seconds = 0;
  } timed_gathers = {};        // at the start, see gather_route.h
  bool blocks_chosen = false;  // --blocks-per-unit auto
  std::int64_t host_room = 0;  // of host memory, that buffers are sized for; 0: plenty
  TuningRange levels = {};     // that memory is planned for; empty: as the options say
  bool room_to_probe = true;   // for the host's part of the step to be measured and tuned

  int pieces_under_way() const;  // that there are buffers for
  std::int64_t tokens_per_step() const;
  std::int64_t rows_of(int rank) const;      // of a micro-step
  std::int64_t rows_before(int rank) const;  // of the ranks before this one
  Arrangement arrangement() const;
  // Options of `zeepo train` that give the arrangement again, beside those that the run was given.
  std::string flags() const;
  RunSetup with(const Arrangement& arrangement) const;
  // The same with other options, and the model that these ask for.
  RunSetup with(TrainOptions other) const;
};

// Checks the options against each other and against config.json. A seq_len of 0 becomes the default.
RunSetup make_setup(TrainOptions options, const RankShape& ranks);
// The same of a model that has no directory.
RunSetup make_setup(TrainOptions options, const RankShape& ranks, const ModelConfig& of_model);

EngineOptions engine_options(const RunSetup& setup);
LowerTiers::Options lower_options(const RunSetup& setup);
TierOptions tier_options(const TrainOptions& options);

// What the optimizer's step of offloaded state moves.
StepWork step_work(const TrainOptions& options);
// Whether the host's part of that step is measured and tuned: asked for, of use, and with room for it.
bool tunes_host_share(const RunSetup& setup);

}  // namespace zeepo
