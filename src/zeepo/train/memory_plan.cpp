#include "zeepo/train/memory_plan.h"

#include <algorithm>

#include "zeepo/train/dry_steps.h"

namespace zeepo {

MemoryPlan plan_memory(const RunSetup& setup) {
  const EngineOptions options = engine_options(setup);
  // The third micro-step is as the second, unless what is cached goes on from one to the next.
  const std::int64_t micro_steps = options.placement.cache == CachePolicy::fixed
                                       ? std::min<std::int64_t>(options.accumulation, 2)
                                       : options.accumulation;
  DrySteps dry(setup, micro_steps);
  const auto two_steps = [&] {  // the first is recorded; like all later ones, the second runs ahead
    dry.step();
    dry.step();
    if (setup.options.eval_data.empty()) return;
    for (int pass = 0; pass < 2; ++pass) dry.evaluate();
    dry.step();  // after what an evaluation has left
  };
  two_steps();
  for (std::size_t level = 1; level < setup.levels.prefetch_bytes.size(); ++level) {
    dry.engine().set_depths({setup.levels.prefetch_bytes[level], options.pieces_under_way, options.host_share});
    two_steps();
  }
  dry.engine().settled_io().take_room_to_read();  // weights on their way out must fit too
  return used_by(dry.session());
}

}  // namespace zeepo
