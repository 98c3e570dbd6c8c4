// Checkpoints of a run, written while it trains: every so many steps, and after the last one.
//
// All ranks make the same calls after the same steps. Each rank writes its own file; when all are on the disk, which
// the ranks tell each other after a step, rank 0 publishes the checkpoint. A save that fails is reported and costs
// nothing else: the checkpoints before it stay, and training goes on.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "zeepo/binding/model_engine.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/checkpoint/rank_file.h"
#include "zeepo/train/planning.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/token_batches.h"

namespace zeepo {

// Where a run comes from: what is compared when it is resumed.
std::map<std::string, std::string> origin_of(const TrainOptions& options, const TrainingData& data);

// The node of each rank, as sums by nodes see them: all on one where nodes make no difference.
std::vector<int> nodes_of(const RunSetup& setup);

class Checkpointing {
 public:
  // Borrows everything. Throws Error when the directory cannot be used.
  Checkpointing(const RunPlan& plan, const TokenBatches& batches, std::map<std::string, std::string> origin,
                ModelEngine& engine, RunReport& report, FileOperations& operations);
  ~Checkpointing();

  // The loss of an evaluation after a step: the lowest so far makes a save due after the step.
  void evaluated(std::int64_t step, double loss);
  // Of the run that goes on: the lowest, and the checkpoints that were found damaged and passed over.
  void restore(const std::optional<Manifest::Evaluated>& best, std::set<std::filesystem::path> damaged) {
    best_ = saved_best_ = best;
    damaged_ = std::move(damaged);
  }
  // Looks after the save that is under way and, where one is due, begins another.
  void after_step(const StepReport& step, const Depths& depths);
  // A checkpoint of this step, published when this returns. False: it could not be written.
  bool save_last(const StepReport& step, const Depths& depths);
  // What has been begun is published, or has failed, when this returns: a run that ends early keeps it.
  void finish();
  // Whether the last save that was begun has failed.
  bool last_failed() const { return last_failed_; }

 private:
  void begin(const StepReport& step, const Depths& depths);
  void look_after(bool wait);
  void remove_old();
  float sum_over_ranks(float number);
  bool any_failed(const std::string& failure);

  const RunSetup& setup_;        // of the plan
  const TrainOptions& options_;  // the same
  const TokenBatches& batches_;
  std::map<std::string, std::string> origin_;
  ModelEngine& engine_;
  RunReport& report_;
  FileOperations& operations_;
  int rank_, ranks_;
  std::unique_ptr<CheckpointDirectory> directory_;  // on rank 0
  std::unique_ptr<RankFile> file_;                  // of the save under way
  Manifest manifest_;                               // of the same
  std::int64_t last_begun_ = 0;                     // step
  std::chrono::steady_clock::time_point begun_;     // the same
  bool last_failed_ = false;
  std::optional<Manifest::Evaluated> evaluated_, best_;  // last; the lowest so far
  std::optional<Manifest::Evaluated> saved_best_;        // the lowest that has a checkpoint
  std::set<std::filesystem::path> damaged_;              // names
};

}  // namespace zeepo
