#include "zeepo/train/dry_steps.h"

#include "zeepo/model/initial_weights.h"

namespace zeepo {
namespace {

EngineOptions with_accumulation(EngineOptions options, std::int64_t accumulation) {
  options.accumulation = accumulation;
  return options;
}

}  // namespace

DrySteps::DrySteps(const RunSetup& setup, std::int64_t accumulation, SimulatedTime* time)
    : setup_(setup),
      options_(with_accumulation(engine_options(setup), accumulation)),
      ranks_(setup.ranks),
      session_(Session::dry(ranks_, lower_options(setup), setup.options.backend, time)),
      engine_(*setup.model, session_.communicator(), options_) {
  engine_.load(random_weights(setup.options.seed));
  session_.restart_peaks();
}

TokenBatch DrySteps::blank(std::int64_t rows) const {
  const Shape shape{rows, setup_.options.seq_len};
  return {Tensor(shape, DType::i32), Tensor(shape, DType::i32)};
}

void DrySteps::step() {
  engine_.expect_rate(0);
  ++number_;
  for (std::int64_t m = 0; m < options_.accumulation; ++m)
    run_micro_step(engine_, setup_, number_, m, [this] { return blank(setup_.rows_of(setup_.ranks.rank)); });
  (void)engine_.step(0);
}

void DrySteps::evaluate() {
  (void)run_eval_pass(engine_, setup_, [this] { return blank(setup_.options.micro_batch); });
}

}  // namespace zeepo
