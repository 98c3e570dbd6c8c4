// The next token from its logits.
#pragma once

#include <cstdint>
#include <span>

#include "zeepo/base/rng.h"

namespace zeepo {

struct Sampling {
  float temperature = 0;   // 0: greedy, the most likely token
  std::int64_t top_k = 0;  // only the k most likely; 0: all
  float top_p = 1;         // of those only the most likely that together reach p
  std::uint64_t seed = 0;
};

// The largest logit; the lowest id among equals.
std::int32_t most_likely(std::span<const float> logits);
// Whether they choose a token: the largest is a finite number, and none is NaN. -inf is a token that cannot be.
bool choose_any(std::span<const float> logits);
// Throws Error where they do not.
std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, std::uint64_t position);

}  // namespace zeepo
