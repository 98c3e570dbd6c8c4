// Where this thread stands in its stream of random choices (dropout), and whether it makes any. A checkpointed piece
// that runs again starts from the state of its first run.
#pragma once

#include <cstdint>

#include "zeepo/base/rng.h"

namespace zeepo {

struct RandomState {
  RngKey key;
  std::uint64_t next = 0;
  bool training = false;

  static RandomState& current();
  // A fresh key for one op.
  RngKey take() { return mix(key, next++); }
};

}  // namespace zeepo
