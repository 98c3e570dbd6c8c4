// The rule by which a flat shard of weights is stepped, and the state it keeps for each.
#pragma once

#include <cstdint>
#include <span>

#include "zeepo/kernels/optimizer.h"

namespace zeepo {

enum class OptimizerType { adamw, adam, sgd };

struct OptimizerOptions {
  OptimizerType type = OptimizerType::adamw;
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;  // adamw, adam
  float momentum = 0.9f;                           // sgd
  float weight_decay = 0.1f;
};

// fp32 arrays kept for each weight: both moments, or the momentum.
int state_count(const OptimizerOptions& options);

// Steps one contiguous part of a shard where its memory is: on the device's stream, or on the host's. `step` counts the
// steps taken, this one included; weight_decay stands in for the options' (0 for parts that are not to decay); states
// are state_count() tensors of the weights' length.
struct StepPart {
  Weights weights;
  ConstView grad;
  std::span<const View> states;
  float weight_decay;
};
void step(Stream& stream, const OptimizerOptions& options, const StepPart& part, ConstView control, std::int64_t step,
          double lr);

}  // namespace zeepo
