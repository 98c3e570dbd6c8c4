// Steps of a run with shapes only, through the same model, tape and engine: for plans of memory and of time.
#pragma once

#include <cstdint>

#include "zeepo/binding/model_engine.h"
#include "zeepo/budget/absent_ranks.h"
#include "zeepo/train/micro_step.h"
#include "zeepo/train/run_setup.h"
#include "zeepo/zero/session.h"

namespace zeepo {

class DrySteps {
 public:
  // Of `accumulation` micro-steps each. `setup` and `time` are borrowed; without `time` none passes.
  DrySteps(const RunSetup& setup, std::int64_t accumulation, SimulatedTime* time = nullptr);

  void step();
  void evaluate();
  ModelEngine& engine() { return engine_; }
  Session& session() { return session_; }
  const EngineOptions& options() const { return options_; }

 private:
  TokenBatch blank(std::int64_t rows) const;

  const RunSetup& setup_;
  EngineOptions options_;
  AbsentRanks ranks_;
  Session session_;
  ModelEngine engine_;
  int number_ = 0;
};

}  // namespace zeepo
