// One micro-step: forward and backward pass of one micro-batch on one rank; or its forward pass alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "zeepo/binding/model_engine.h"
#include "zeepo/model/language_model.h"
#include "zeepo/train/run_setup.h"

namespace zeepo {

// Token ids and what follows each: int32 (B, T), on the current device. Targets that do not count are negative.
struct TokenBatch {
  Tensor ids, targets;
  std::optional<float> divisor = std::nullopt;  // of the loss: see head_cross_entropy
};

// `number` counts from 0 within `step`. `batch` is called inside of the engine's pass, where its memory is planned.
void run_micro_step(ModelEngine& engine, const RunSetup& setup, std::int64_t step, std::int64_t number,
                    const std::function<TokenBatch()>& batch);

// Forward pass alone, without dropout: the sum of the losses of the targets that count.
float run_eval_pass(ModelEngine& engine, const RunSetup& setup, const std::function<TokenBatch()>& batch);

}  // namespace zeepo
