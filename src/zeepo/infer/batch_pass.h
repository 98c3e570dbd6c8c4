// Runs passes of a batch on an engine: the pages of the KV cache, and how the ranks keep together.
//
// Rank 0 leads with a step; the others follow until a step says that it is over. All calls come from the rank's thread,
// with its Device in scope.
#pragma once

#include <chrono>
#include <vector>

#include "zeepo/infer/batch_step.h"
#include "zeepo/infer/generator.h"
#include "zeepo/infer/inference.h"

namespace zeepo {

class BatchPass {
 public:
  // Takes the memory of all pages.
  BatchPass(ModelEngine& engine, LanguageModel& model, DType dtype, const BatchLimits& limits);

  struct Result {
    std::vector<float> logits;  // (rows of all parts that want some, vocab), row by row; on rank 0
    PassReport report;
  };
  // On rank 0. The other ranks run the same step.
  Result lead(const BatchStep& step);
  // On rank 0, with the engine's draft of the weights: the other ranks have no part in it. A pass of the weights
  // themselves comes to the same positions again.
  std::vector<float> draft(const BatchStep& step);
  bool drafts() const { return engine_.drafts(); }
  // On every other rank: returns when it is over, with the report of the last pass.
  PassReport follow();

  // Whether a signal has asked this rank, or of late another, to end (base/stop_request.h). A watcher may ask often.
  bool told_to_end() const;

  std::int64_t vocab() const { return model_.config().vocab; }

 private:
  // The step of rank 0, on every rank.
  BatchStep agree(BatchStep step);
  // On every rank alike: tells the others whether a signal has come.
  void hear_of_signals();
  // What the report counts from.
  struct Began {
    std::chrono::steady_clock::time_point at;
    Stalls stalled;
  };
  Began begin() const { return {std::chrono::steady_clock::now(), engine_.stalls()}; }
  Result run(const BatchStep& step, const Began& began);
  // The rows that a step wants, of a pass that is under way.
  std::vector<float> logits_of(const BatchStep& step);

  ModelEngine& engine_;
  LanguageModel& model_;
  KvPages pages_;
  std::int64_t passes_ = 0;
  std::chrono::steady_clock::time_point asked_;  // the ranks, of signals
  bool others_end_ = false;
};

// Limits to plan for, the largest KV cache first: `most` positions, then halves of it down to `least`.
std::vector<BatchLimits> limits_to_try(BatchLimits limits, std::int64_t most, std::int64_t least);

// All that a batch within these limits may do, on an engine that runs dry: for the plan of memory.
void rehearse(ModelEngine& engine, LanguageModel& model, DType dtype, const BatchLimits& limits);
// The same for each of them, as an Inference tries them.
std::vector<InferenceWork> rehearsals(const InferenceOptions& options, const std::vector<BatchLimits>& limits);

}  // namespace zeepo
