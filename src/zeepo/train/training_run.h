// The run itself, as it was planned: its steps, one after another, and the weights that come of them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/model/weight_files.h"
#include "zeepo/model/weight_shards.h"
#include "zeepo/train/checkpointing.h"
#include "zeepo/train/planning.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/token_batches.h"
#include "zeepo/train/tuning.h"

namespace zeepo {

class TrainingRun {
 public:
  // Borrows everything.
  TrainingRun(const RunPlan& plan, TokenBatches& batches, Session& session, RunReport& report, Timeline* timeline);

  // Weights from the files, or from the seed without any.
  void load(const WeightFiles* files);
  // All of a checkpoint's state; false where there is none to go on from. `origin`: see checkpointing.h.
  bool resume(const std::map<std::string, std::string>& origin);
  // Lets train() write checkpoints.
  void keep_checkpoints(const std::map<std::string, std::string>& origin, FileOperations& operations);
  // All steps, and the summary of them. Throws Error when the last loss is not finite, and Stopped on all ranks alike,
  // with nothing on its way between them, when a signal to any rank asks for the end.
  void train();
  // Whether the last checkpoint that was to be written could not be.
  bool last_save_failed() const { return checkpoints_ && checkpoints_->last_failed(); }
  // A collective; rank 0 writes the Hugging Face directory.
  void save(const std::vector<ModelTensor>& tensors);

 private:
  StepReport step(std::int64_t number);
  [[noreturn]] void stop(const StepReport& last, const Depths& depths, int signal);

  const RunPlan& plan_;
  const TrainOptions& options_;  // of the plan
  TokenBatches& batches_;
  Session& session_;
  RunReport& report_;
  Timeline* timeline_;
  ModelEngine engine_;
  std::int64_t steps_done_ = 0;  // by the run that was resumed
  double last_loss_ = 0;         // of that run
  std::unique_ptr<Checkpointing> checkpoints_;
};

}  // namespace zeepo
