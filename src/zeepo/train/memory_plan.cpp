#include "zeepo/train/memory_plan.h"

#include <algorithm>

#include "zeepo/model/initial_weights.h"
#include "zeepo/train/micro_step.h"

namespace zeepo {

MemoryPlan plan_memory(const RunSetup& setup) {
  AbsentRanks ranks(setup.ranks);
  Session session = Session::dry(ranks, lower_options(setup), setup.options.backend);
  EngineOptions options = engine_options(setup);
  // The third micro-step is as the second, unless what is cached goes on from one to the next.
  if (options.placement.cache == CachePolicy::fixed)
    options.accumulation = std::min<std::int64_t>(options.accumulation, 2);
  {
    ModelEngine engine(*setup.model, session.communicator(), options);
    engine.load(random_weights(setup.options.seed));
    session.restart_peaks();
    const Shape shape{setup.options.micro_batch, setup.options.seq_len};
    const auto blank = [&] { return TokenBatch{Tensor(shape, DType::i32), Tensor(shape, DType::i32)}; };
    const auto step = [&](int number) {
      engine.expect_rate(0);
      for (std::int64_t m = 0; m < options.accumulation; ++m) run_micro_step(engine, setup, number, m, blank);
      (void)engine.step(0);
    };
    const auto two_steps = [&] {  // the first is recorded; like all later ones, the second runs ahead
      step(1);
      step(2);
      if (setup.options.eval_data.empty()) return;
      for (int pass = 0; pass < 2; ++pass) (void)run_eval_pass(engine, setup, blank);
      step(3);  // after what an evaluation has left
    };
    two_steps();
    for (std::size_t level = 1; level < setup.levels.prefetch_bytes.size(); ++level) {
      engine.set_depths({setup.levels.prefetch_bytes[level], options.pieces_under_way, options.host_share});
      two_steps();
    }
    engine.settled_io().take_room_to_read();  // weights on their way out must fit too
  }
  return used_by(session);
}

}  // namespace zeepo
