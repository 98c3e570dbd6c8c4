// The rule by which a flat shard of weights is stepped, and the state it keeps for each.
#pragma once

#include <cstdint>
#include <span>

#include "zeepo/kernels/optimizer.h"

namespace zeepo {

enum class OptimizerType { adamw, adam, sgd };
// What is kept of each moment (kernels/moments.h). eight_bit: adamw and adam.
enum class MomentType { fp32, bf16, eight_bit };

struct OptimizerOptions {
  OptimizerType type = OptimizerType::adamw;
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;  // adamw, adam
  float momentum = 0.9f;                           // sgd
  float weight_decay = 0.1f;
  MomentType moments = MomentType::fp32;
  std::uint64_t seed = 0;  // of chance, by which narrow moments are rounded
};

// Moments kept of each weight: both, or the momentum.
int state_count(const OptimizerOptions& options);
// Throws UsageError for moments that the rule cannot keep.
void check(const OptimizerOptions& options);

// Steps one contiguous part of a shard where its memory is: on the device's stream, or on the host's. `step` counts the
// steps taken, this one included; weight_decay stands in for the options' (0 for parts that are not to decay); states
// are state_count() moments of the weights' length. The part starts at weight `first` of the model, a multiple of
// kMomentBlock.
struct StepPart {
  Weights weights;
  ConstView grad;
  std::span<const Moment> states;
  float weight_decay;
  std::int64_t first = 0;
};
void step(Stream& stream, const OptimizerOptions& options, const StepPart& part, ConstView control, std::int64_t step,
          double lr);

}  // namespace zeepo
