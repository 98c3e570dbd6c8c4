#include "zeepo/torch/torch_plan.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr std::int64_t kPlannedElements = 1 << 18, kPlannedUnits = 8, kAll = kPlannedElements * kPlannedUnits;

UnitPlan units() {
  UnitPlan plan;
  for (std::int64_t u = 0; u < kPlannedUnits; ++u) {
    UnitParameter parameter{0, {kPlannedElements}, true, {}};
    parameter.weights.push_back({{fmt::format("{}", u), {kPlannedElements}}, 0, kPlannedElements});
    plan.units.push_back({fmt::format("unit {}", u), {parameter}, kPlannedElements});
  }
  return plan;
}

TrainOptions on_gpu(const Shares& optimizer = {}) {
  TrainOptions options;
  options.backend = Backend::cuda;
  options.placement.optimizer = optimizer;
  return options;
}

EngineOptions bf16(const TrainOptions& options) {
  EngineOptions engine{.dtype = DType::bf16, .placement = options.placement, .step_below_on = StepSide::device};
  engine.piece_elements = EngineOptions::kPieceAlignment;
  return engine;
}

TorchRun plan(TrainOptions options, std::int64_t device_bytes) {
  options.device_bytes = device_bytes;
  return plan_torch_run(units(), options, bf16(options), {}, {device_bytes, std::int64_t{1} << 30, 0});
}

TEST(TorchPlan, HostMemoryHoldsTenBytesAParameter) {
  const TorchRun run = plan(on_gpu(Shares::all_in(Place::host)), 100 * kAll);
  EXPECT_EQ(run.memory.peak[1][Kind::optimizer], 10 * kAll);
  EXPECT_EQ(run.memory.peak[0][Kind::params], 2 * kAll);
  EXPECT_EQ(run.memory.peak[0][Kind::grads], 2 * kAll);
}

TEST(TorchPlan, BuffersTakeWhatTheBudgetLeaves) {
  const Shares host = Shares::all_in(Place::host);
  const TorchRun narrow = plan(on_gpu(host), 7 * kAll), wide = plan(on_gpu(host), 100 * kAll);
  EXPECT_GE(narrow.engine.pieces_under_way, EngineOptions{}.pieces_under_way);
  EXPECT_GT(wide.engine.pieces_under_way, narrow.engine.pieces_under_way);
  EXPECT_LE(narrow.memory.bytes[0], 7 * kAll);
  EXPECT_LE(wide.memory.bytes[0], 16 * kAll);  // no more than there are states
}

TEST(TorchPlan, AChosenPlacementFitsAndMovesNoMoreThanItMust) {
  TrainOptions options = on_gpu();
  options.choose = {.params = true, .optimizer = true};
  EXPECT_TRUE(plan(options, 20 * kAll).options.placement.on_device());
  const TorchRun some = plan(options, 12 * kAll);
  EXPECT_LE(some.memory.bytes[0], 12 * kAll);
  EXPECT_GT(some.options.placement.optimizer.host, 0);
  EXPECT_TRUE(some.options.placement.params.on_device());
  EXPECT_TRUE(names(error_text([&] { (void)plan(options, 1000); }), "of device memory"));
}

}  // namespace
}  // namespace zeepo
