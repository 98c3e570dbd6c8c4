// Lets a Tuner watch a run and turn the engine's depths: measures over all ranks, says what was changed.
#pragma once

#include <optional>

#include "zeepo/binding/model_engine.h"
#include "zeepo/train/planning.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/tuner.h"

namespace zeepo {

class Tuning {
 public:
  // Borrows plan, engine and report. Nothing is tuned where the plan has one level of everything.
  Tuning(const RunPlan& plan, ModelEngine& engine, RunReport& report);

  // Before the first step: where the run that is resumed had come to.
  void start_at(const Depths& depths);
  // After each step, on every rank: all are told the same and turn the same knobs. Of a settled run, only some steps
  // are followed by a sum over the ranks, of three numbers.
  void after_step(const StepReport& step);
  // As they are, tuned or not.
  Depths depths() const;

 private:
  Measured over_all_ranks(const Measured& own);
  void propose_host_share(double waited_seconds);

  const RunPlan& plan_;
  ModelEngine& engine_;
  RunReport& report_;
  std::optional<Tuner> tuner_;
  StepMeter meter_;
};

}  // namespace zeepo
