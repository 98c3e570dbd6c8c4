// Goes on where a checkpoint was written: finds a whole one, compares its options with the run's, loads its states.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "zeepo/binding/model_engine.h"
#include "zeepo/checkpoint/checkpoint.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {

// The last step of the run that was saved.
struct ResumePoint {
  std::int64_t step = 0, samples = 0;
  double loss = 0;
  Depths depths = {};  // of the tuner
  std::optional<Manifest::Evaluated> best = {};
  std::set<std::filesystem::path> damaged = {};  // names of checkpoints that were passed over
};

// What differs between a checkpoint and the run that is to go on from it, a line each: what changes the result, and
// what does not.
struct OptionChanges {
  std::vector<std::string> of_result, of_execution;
};
OptionChanges changes_since(const Manifest& manifest, const RunSetup& setup,
                            const std::map<std::string, std::string>& origin);

// The speeds that ranks were measured to have (--balance auto) in the run that is to go on, so that it keeps its
// shares: none where it had another number of ranks, or did not measure. All ranks are told the same.
std::vector<double> saved_speeds(const RunSetup& setup, Communicator& communicator);

// Loads the newest whole checkpoint, or the one that the options name. Nothing where --checkpoint-dir has none. Throws
// Error when none is whole, or options that change the result differ and may not. Every rank calls it, and all load the
// same one.
std::optional<ResumePoint> resume_run(const RunSetup& setup, const std::map<std::string, std::string>& origin,
                                      ModelEngine& engine, Communicator& communicator, RunReport& report);

}  // namespace zeepo
