// The run itself, as it was planned: its steps, one after another, and the weights that come of them.
#pragma once

#include <vector>

#include "zeepo/model/weight_files.h"
#include "zeepo/model/weight_shards.h"
#include "zeepo/train/planning.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/token_batches.h"
#include "zeepo/train/tuning.h"

namespace zeepo {

class TrainingRun {
 public:
  // Borrows everything.
  TrainingRun(const RunPlan& plan, const TokenBatches& batches, Session& session, RunReport& report,
              Timeline* timeline);

  // Weights from the files, or from the seed without any.
  void load(const WeightFiles* files);
  // All steps, and the summary of them. Throws Error when the last loss is not finite, and Stopped on all ranks alike,
  // with nothing on its way between them, when a signal to any rank asks for the end.
  void train();
  // A collective; rank 0 writes the Hugging Face directory.
  void save(const std::vector<ModelTensor>& tensors);

 private:
  StepReport step(std::int64_t number);
  [[noreturn]] void stop(std::int64_t after_step, int signal);

  const RunPlan& plan_;
  const TrainOptions& options_;  // of the plan
  const TokenBatches& batches_;
  Session& session_;
  RunReport& report_;
  Timeline* timeline_;
  ModelEngine engine_;
};

}  // namespace zeepo
