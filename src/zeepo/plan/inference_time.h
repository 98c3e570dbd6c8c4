// How long the passes of inference take and what bounds them: passes with shapes only, on a clock
// (device/simulated_time.h).
#pragma once

#include <array>
#include <cstdint>

#include "zeepo/device/simulated_time.h"
#include "zeepo/infer/batch_step.h"
#include "zeepo/infer/inference.h"
#include "zeepo/train/step_time.h"

namespace zeepo {

// What is asked of a model: texts that begin together.
struct TextsAsked {
  std::int64_t batch = 1;
  std::int64_t prompt_tokens = 512, new_tokens = 128;  // of each text
};

// Pages for all of them, as `zeepo generate --batch-file` takes them.
BatchLimits limits_of(const TextsAsked& texts, Place kv);

// All that `zeepo generate` does for these texts, for the plan of memory: one text by itself, several in pages.
InferenceWork work_of(const InferenceOptions& options, const TextsAsked& texts);

struct InferenceTime {
  double first_token_seconds = 0;  // until all prompts are read
  double pass_seconds = 0;         // of a pass that gives each text a token
  double tokens_per_second = 0;    // then, of all texts together
  double seconds = 0;              // of all of it
  BusySeconds busy_seconds{};      // of such a pass

  SimulatedTime::Resource bound() const { return busiest(busy_seconds); }
};

// Without drafts. A pure function, as dry_inference(). `timeline` gets the last pass, where it is wanted.
InferenceTime predict_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                                const TextsAsked& texts, const SimulatedRates& rates, StepTimeline* timeline = nullptr);

}  // namespace zeepo
