// Events as a run writes them.
#pragma once

#include "zeepo/metrics/event_sink.h"

namespace zeepo {

inline Event step_event(std::int64_t step, double loss = 2.5) {
  const auto tier = [](std::int64_t params) {
    return Event{{"params", params}, {"grads", 0},   {"optimizer", 0},
                 {"activations", 7}, {"working", 0}, {"total", params + 7}};
  };
  return {{"event", "step"},
          {"step", step},
          {"loss", loss},
          {"grad_norm", 0.1 + 0.2},
          {"lr", 1e-3},
          {"tokens", 64},
          {"seconds", 0.5},
          {"tokens_per_second", 128.0},
          {"tflops", 0.25},
          {"stall_seconds", {{"gather", 0.0}, {"host", 0.125}, {"nvme", 0.0}, {"step", 0.0625}}},
          {"memory", {{"device", tier(1000)}, {"host", tier(500)}, {"nvme", tier(0)}}}};
}

inline Event eval_event(std::int64_t step, double loss) { return {{"event", "eval"}, {"step", step}, {"loss", loss}}; }

}  // namespace zeepo
