// The run itself, as it was planned: its steps, one after another, and the weights that come of them.
#pragma once

#include <vector>

#include "zeepo/model/weight_files.h"
#include "zeepo/train/model_saving.h"
#include "zeepo/train/planning.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/token_batches.h"
#include "zeepo/train/tuning.h"

namespace zeepo {

class TrainingRun {
 public:
  // Borrows everything.
  TrainingRun(const RunPlan& plan, const TokenBatches& batches, Session& session, RunReport& report,
              ModelSaving& saving, Timeline* timeline);

  // Weights from the files, or from the seed without any. Throws Error for weights that are not numbers.
  void load(const WeightFiles* files);
  // All steps; then the model is saved, before anything else that may fail, and the summary told. Throws Error when the
  // last loss or a weight is not finite, and Stopped on all ranks alike, with nothing on its way between them, when a
  // signal to any rank asks for the end.
  void train();

 private:
  StepReport step(std::int64_t number);
  [[noreturn]] void stop(std::int64_t after_step, int signal);

  const RunPlan& plan_;
  const TrainOptions& options_;  // of the plan
  const TokenBatches& batches_;
  Session& session_;
  RunReport& report_;
  ModelSaving& saving_;
  Timeline* timeline_;
  ModelEngine engine_;
};

}  // namespace zeepo
