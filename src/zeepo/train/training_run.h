// The run itself, as it was planned: its steps, one after another, and the weights that come of them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/train/checkpointing.h"
#include "zeepo/train/evaluation.h"
#include "zeepo/train/model_saving.h"
#include "zeepo/train/nan_watch.h"
#include "zeepo/train/page_faults.h"
#include "zeepo/train/planning.h"
#include "zeepo/train/resume.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/token_batches.h"
#include "zeepo/train/tuning.h"

namespace zeepo {

class TrainingRun {
 public:
  // Borrows everything.
  TrainingRun(const RunPlan& plan, TokenBatches& batches, Session& session, RunReport& report, ModelSaving& saving,
              Timeline* timeline);

  // Weights from the files, or from the seed without any. Throws Error for weights that are not numbers.
  void load(const WeightFiles* files);
  // All of a checkpoint's state; false where there is none to go on from. `origin`: see checkpointing.h.
  bool resume(const std::map<std::string, std::string>& origin);
  // Lets train() evaluate; borrowed.
  void evaluate_by(const Evaluation& evaluation) { evaluation_ = &evaluation; }
  // Lets train() write checkpoints.
  void keep_checkpoints(const std::map<std::string, std::string>& origin, FileOperations& operations);
  // All steps; then the model is saved, before anything else that may fail, and the summary told. Throws Error when the
  // last loss or a weight is not finite, and Stopped on all ranks alike, with nothing on its way between them, when a
  // signal to any rank asks for the end.
  void train();
  // Whether the last checkpoint that was to be written could not be.
  bool last_save_failed() const { return checkpoints_ && checkpoints_->last_failed(); }

 private:
  StepReport step(std::int64_t number);
  StepResult apply_step(std::int64_t number, double lr);
  // The signal that has ended it before its end; 0: none.
  int evaluate(std::int64_t number);
  [[noreturn]] void stop(const StepReport& last, const Depths& depths, int signal);

  const RunPlan& plan_;
  const TrainOptions& options_;  // of the plan
  TokenBatches& batches_;
  Session& session_;
  RunReport& report_;
  ModelSaving& saving_;
  Timeline* timeline_;
  std::unique_ptr<Communicator> silent_;  // with --no-communication
  ModelEngine engine_;
  ResumePoint resumed_ = {};  // the last step of the run before; 0 where there is none
  PageFaults page_faults_;
  std::unique_ptr<Checkpointing> checkpoints_;
  const Evaluation* evaluation_ = nullptr;
  NanWatch nans_;
};

}  // namespace zeepo
